"""The roles of a server, one after the other: starting, standby, active. Calls go to the present role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import grpc.aio

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.authentication import Authenticator
from fluss_tiering.server.edge.callers.executor_tokens import UncheckedExecutorTokens

if TYPE_CHECKING:
    # These classes are generic only in their type stubs, not at run time.
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Handler = Context = Any


class Role(Protocol):
    """A role of a server.

    Attributes:
        server_id: The id of the server, which is that of its storage; None if calls may name any id.
        executors: Knows the tokens of rounds.
    """

    server_id: str | None
    executors: Authenticator

    def handler(self, method: str) -> Handler:
        """Return the handler of a method of our services."""
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
        executors: Knows the tokens of rounds.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        check: Callable[[], None],
        end_streams: Callable[[], None],
        server_id: str,
        executors: Authenticator,
    ) -> None:
        self.server_id: str | None = server_id
        self.executors = executors
        self._handlers = handlers
        self.check = check
        self.end_streams = end_streams

    def handler(self, method: str) -> Handler:
        """Return the handler of the service."""
        return self._handlers[method]


class StartingRole:
    """A server that is not ready yet: it refuses all calls."""

    server_id: str | None = None
    executors: Authenticator = UncheckedExecutorTokens()

    def handler(self, method: str) -> Handler:
        """Return a handler that refuses."""
        del method
        return bytes_handler(_refuse)

    def check(self) -> None:
        """Do nothing: the handlers refuse."""

    def end_streams(self) -> None:
        """Do nothing: there are no streams."""


def handler_for(role: Role, method: str, named: str | None) -> Handler:
    """Return the role's handler of a method, or one that refuses a call that is for another server.

    Args:
        role: The present role.
        named: The id of the server that the call names; None if it names none.
    """
    if named is None or role.server_id in (None, named):
        return role.handler(method)
    return bytes_handler(partial(_refuse_stray, str(role.server_id), named))


async def _refuse_stray(
    present: str, named: str, requests: AsyncIterator[bytes], context: Context
) -> AsyncIterator[bytes]:
    del requests, context
    raise FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"another tiering server listens here: its id is {present}, and the call is for the server {named}; check the "
        "address, or name the right id in ID@HOST:PORT",
    )
    yield b""  # makes the function a generator


async def _refuse(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
    del requests, context
    raise FlussTieringError(ErrorCode.UNAVAILABLE, "the server is starting: try again in a moment")
    yield b""  # makes the function a generator


def bytes_handler(behaviour: Callable[[AsyncIterator[bytes], Context], AsyncIterator[bytes]]) -> Handler:
    """Return a handler for any kind of method: on the wire, each kind is a stream of messages in both directions."""
    return grpc.stream_stream_rpc_method_handler(behaviour, None, None)
