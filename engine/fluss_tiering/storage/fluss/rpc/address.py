"""The addresses of Fluss servers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\],]+)):([0-9]{1,5})")


@dataclass(frozen=True, order=True, slots=True)
class ServerAddress:
    """The host and the port of a server."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ServerAddress:
        """Read HOST:PORT; an IPv6 address is in brackets.

        Raises:
            FlussTieringError: INVALID_REQUEST if the text is anything else.
        """
        match = _ADDRESS.fullmatch(text.strip())
        if match is None or not 1 <= int(match[3]) <= 65535:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{text!r} is no address of a Fluss server: expected HOST:PORT, for example localhost:9123",
            )
        return cls(match[1] or match[2], int(match[3]))

    @classmethod
    def parse_list(cls, text: str) -> tuple[ServerAddress, ...]:
        """Read one HOST:PORT or several, separated by commas (Fluss's `bootstrap.servers`).

        Raises:
            FlussTieringError: INVALID_REQUEST if a part is anything else.
        """
        return tuple(cls.parse(each) for each in text.split(","))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
