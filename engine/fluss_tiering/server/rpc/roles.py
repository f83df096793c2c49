"""What a server may be, one after the other: starting, waiting, active. Calls go to what it is at the moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import grpc.aio

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

if TYPE_CHECKING:
    # These are generic in their type stubs alone.
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Handler = Context = Any


class Role(Protocol):
    """One thing that a server may be."""

    def handler(self, method: str) -> Handler:
        """The handler of one of our methods, by its path."""
        ...

    def check(self) -> None:
        """Asked before each call and each message of a stream. Raises what the call is refused with."""
        ...

    def end_streams(self) -> None:
        """Ends the streams that would not end by themselves, since the server stops."""
        ...


class ActiveRole:
    """The active server: its own services answer."""

    def __init__(
        self, handlers: Mapping[str, Handler], check: Callable[[], None], end_streams: Callable[[], None]
    ) -> None:
        self._handlers = handlers
        self.check = check
        self.end_streams = end_streams

    def handler(self, method: str) -> Handler:
        """The service's own."""
        return self._handlers[method]


class StartingRole:
    """A server that is not ready yet."""

    def handler(self, method: str) -> Handler:
        """Refuses."""
        del method
        return bytes_handler(_refuse)

    def check(self) -> None:
        """Nothing to check."""

    def end_streams(self) -> None:
        """There are none."""


async def _refuse(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
    del requests, context
    raise FlussTieringError(ErrorCode.UNAVAILABLE, "the server is starting: try again in a moment")
    yield b""  # makes it a stream


def bytes_handler(behaviour: Callable[[AsyncIterator[bytes], Context], AsyncIterator[bytes]]) -> Handler:
    """A handler of any kind of method, since on the wire each of them is a stream of messages either way."""
    return grpc.stream_stream_rpc_method_handler(behaviour, None, None)
