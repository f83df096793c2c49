"""A call to a Fluss cluster as a value, and where it goes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey

ResponseT = TypeVar("ResponseT", bound=Message)
ResultT = TypeVar("ResultT")
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\],]+)):([0-9]{1,5})")


class ServerKind(Enum):
    """The servers that serve a call that does not go to a bucket's leader."""

    COORDINATOR = auto()
    ANY = auto()


@dataclass(frozen=True, slots=True)
class BucketLeader:
    """The tablet server that leads a bucket of a table."""

    path: TablePath
    bucket: TableBucket


@dataclass(frozen=True, slots=True)
class Call(Generic[ResponseT, ResultT]):
    """One request, with where it goes and how its answer is read.

    Attributes:
        api: The kind of the request.
        request: The request's message.
        response: The type of the answer's message.
        read: The function that turns the answer's message into the result.
        destination: The server, or the kind of server, that serves the call.
        repeatable: Whether doing the work twice is as good as once, so that the call may be sent again after its
            connection broke.
    """

    api: ApiKey
    request: Message
    response: type[ResponseT]
    read: Callable[[ResponseT], ResultT]
    destination: ServerKind | BucketLeader
    repeatable: bool = True

    def answer(self, message: memoryview) -> ResultT:
        """Return the result that the bytes of an answer hold.

        Raises:
            FlussTieringError: CORRUPT_DATA if the bytes are no such answer; the errors that `read` finds in it.
        """
        response = self.response()
        try:
            response.ParseFromString(message)  # type: ignore[arg-type]  # It takes any buffer.
        except DecodeError as error:
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA,
                f"the answer to {self.api.name} cannot be read: {error}; expected Fluss's message",
            ) from error
        return self.read(response)


def command(
    api: ApiKey, request: Message, response: type[ResponseT], *, repeatable: bool = True
) -> Call[ResponseT, None]:
    """Make a call to the coordinator that has no result."""
    return Call(api, request, response, _nothing, ServerKind.COORDINATOR, repeatable)


def _nothing(_: Any) -> None:  # noqa: ANN401 - any answer
    return None


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
