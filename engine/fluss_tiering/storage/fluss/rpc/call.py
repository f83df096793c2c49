"""A call to a Fluss cluster as a value: made once, sent by the blocking and the asyncio client alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey

ResponseT = TypeVar("ResponseT", bound=Message)
ResultT = TypeVar("ResultT")


class Role(Enum):
    """Which servers serve a call, where not a bucket's leader."""

    COORDINATOR = auto()
    ANY = auto()


@dataclass(frozen=True, slots=True)
class Leader:
    """The tablet server that leads a bucket."""

    path: TablePath
    bucket: TableBucket


@dataclass(frozen=True, slots=True)
class Call(Generic[ResponseT, ResultT]):
    """One request, where it goes and how its answer is read.

    Attributes:
        repeatable: doing its work twice is as good as once, so that it may be sent again after a broken connection.
    """

    api: ApiKey
    request: Message
    response: type[ResponseT]
    read: Callable[[ResponseT], ResultT]
    destination: Role | Leader
    repeatable: bool = True

    def answer(self, message: memoryview) -> ResultT:
        """What the bytes of an answer say.

        Raises:
            FlussTieringError: CORRUPT_DATA when they are no such answer; what `read` finds in it.
        """
        response = self.response()
        try:
            response.ParseFromString(message)  # type: ignore[arg-type]  # any buffer will do
        except DecodeError as error:
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA,
                f"the answer to {self.api.name} cannot be read: {error}; expected Fluss's message",
            ) from error
        return self.read(response)
