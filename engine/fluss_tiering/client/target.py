"""The server that a client is for: its addresses and, if the client names it, its id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from math import inf
from typing import Final, Self

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

DEFAULT_PORT: Final = 9133
"""The port is near Fluss's own port 9123. Fluss's Docker set-up uses 9124 to 9126 for tablet servers."""

_LAST_PORT: Final = 65535

DEFAULT_TARGET: Final = f"127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class Target:
    """A server, as a client names it.

    Attributes:
        addresses: The addresses as gRPC takes them: HOST:PORT, or a resolver's scheme before that. There are several if
            one of several servers is active.
        server_id: The id that the server must have; None for any server.
    """

    addresses: tuple[str, ...]
    server_id: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the server that a text such as `127.0.0.1:9133`, `ID@127.0.0.1:9133` or `a:9133,b:9133` names.

        Blanks around a comma do not count.

        Raises:
            FlussTieringError: INVALID_REQUEST if the host, the port or the id is missing. gRPC's own error would not
                say so.
        """
        if not isinstance(text, str):
            # A field of an Airflow connection may hold any value of JSON.
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the tiering server's address is {text!r}: expected a text HOST:PORT, for example {DEFAULT_TARGET}",
            )
        server_id, at, addresses = text.rpartition("@")
        if at and not re.fullmatch(r"[A-Za-z0-9_.-]+", server_id):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the tiering server's id in {text!r} is {server_id!r}: expected the id that the server logs at its "
                "start, as in ID@HOST:PORT, or no id and no @",
            )
        return cls(tuple(_checked(each, text) for each in split_addresses(addresses)), server_id or None)

    @property
    def address(self) -> str:
        """The addresses as users write them."""
        return ",".join(self.addresses)

    @property
    def is_loopback(self) -> bool:
        """Whether the addresses are ones that only this machine reaches."""
        return all(is_loopback(each.rpartition(":")[0].rpartition("/")[2]) for each in self.addresses)


def _checked(address: str, text: str) -> str:
    """Return one of the addresses in a text. The errors are those of `Target.parse`."""
    if scheme := re.match("https?://", address):
        with_tls = "; --tls or the variable FLUSS_TIERING_TLS asks for TLS" if scheme[0] == "https://" else ""
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the tiering server's address is {text!r}: expected HOST:PORT without {scheme[0]}{with_tls}",
        )
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or re.search(r"\s", host):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the tiering server's address is {text!r}: expected HOST:PORT, for example {DEFAULT_TARGET}",
        )
    if not 1 <= int(port) <= _LAST_PORT:
        # gRPC takes the rest of a division by 65536, which may be the port of another server.
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the tiering server's address is {text!r}: expected a port from 1 to {_LAST_PORT}",
        )
    return address


def split_addresses(text: str) -> list[str]:
    """Return the addresses in a text such as `a:9133, b:9133`. Blanks around a comma do not count."""
    return re.split(" *, *", text)


def checked_timeout(timeout: float) -> float:
    """Return the timeout of a client in seconds, as given.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is not above 0. gRPC would take it for a time that has passed.
    """
    if not 0 < timeout < inf:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"the timeout of a client is {timeout!r}: expected a number of seconds above 0"
        )
    return timeout


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host, by its name or address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
