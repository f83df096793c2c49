"""The roles of a server, one after the other: starting, standby, active. Calls go to the present role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import grpc.aio

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

if TYPE_CHECKING:
    # These classes are generic only in their type stubs, not at run time.
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Handler = Context = Any


class Role(Protocol):
    """A role of a server."""

    def handler(self, method: str) -> Handler:
        """Return the handler of a method of our services.

        Args:
            method: The path of the method.
        """
        ...

    def check(self) -> None:
        """Raise an error if calls must be refused. It is called before each call and each message of a stream."""
        ...

    def end_streams(self) -> None:
        """End the streams that would not end by themselves, because the server stops."""
        ...


class ActiveRole:
    """The active server, whose own services answer.

    Args:
        handlers: The handlers of all methods, by the path of the method.
        check: Raises an error once this server is no longer the active one.
        end_streams: Ends the streams that would not end by themselves.
    """

    def __init__(
        self, handlers: Mapping[str, Handler], check: Callable[[], None], end_streams: Callable[[], None]
    ) -> None:
        self._handlers = handlers
        self.check = check
        self.end_streams = end_streams

    def handler(self, method: str) -> Handler:
        """Return the handler of the service."""
        return self._handlers[method]


class StartingRole:
    """A server that is not ready yet: it refuses all calls."""

    def handler(self, method: str) -> Handler:
        """Return a handler that refuses."""
        del method
        return bytes_handler(_refuse)

    def check(self) -> None:
        """Do nothing: the handlers refuse."""

    def end_streams(self) -> None:
        """Do nothing: there are no streams."""


async def _refuse(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
    del context
    # A standby server that forwards the call would not hear of the refusal before it has sent the request.
    await anext(requests, None)
    raise FlussTieringError(ErrorCode.UNAVAILABLE, "the server is starting: try again in a moment")
    yield b""  # makes the function a generator


def bytes_handler(behaviour: Callable[[AsyncIterator[bytes], Context], AsyncIterator[bytes]]) -> Handler:
    """Return a handler for any kind of method: on the wire, each kind is a stream of messages in both directions."""
    return grpc.stream_stream_rpc_method_handler(behaviour, None, None)
