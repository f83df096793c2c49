"""The standby server: it forwards calls to the active server. While none is active, the database answers reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.failover.forwarding import ActiveServer, gave_no_answer
from fluss_tiering.server.rpc.handlers import decoded
from fluss_tiering.server.rpc.roles import Context, Handler, bytes_handler
from fluss_tiering.server.rpc.services import STREAMED_REQUESTS
from fluss_tiering.server.security.authentication import FORWARDED_KEY, Authenticator
from fluss_tiering.server.security.executor_tokens import ForwardedExecutorTokens

_READ_TIMEOUT_S: Final = 3.0
"""The time limit for the active server to answer a read that the database can answer too."""

_NO_ANSWER: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class StandbyRole:
    """A server that waits until it may take over.

    Args:
        reads: The handlers that answer from the database, by the path of the method.
        credentials: Returns the credentials of a connection to another server; None without TLS.
    """

    server_id: str | None = None
    """The active server compares the id."""
    executors: Authenticator = ForwardedExecutorTokens()

    def __init__(
        self,
        reads: Mapping[str, Handler],
        credentials: Callable[[], grpc.ChannelCredentials | None] = lambda: None,
    ) -> None:
        self._reads = reads
        self._credentials = credentials
        self._active: ActiveServer | None = None
        self._reason = "this server is starting"
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, address: str | None, reason: str) -> None:
        """Forward to another server from now on.

        Args:
            address: The "host:port" of the active server; None if there is none.
            reason: The reason why no server is active, for the clients.
        """
        self._reason = reason
        if self._active is not None and self._active.address != address:
            self._close(self._active)
            self._active = None
        if address is not None and self._active is None:
            self._active = ActiveServer(address, self._credentials())

    def doubt(self, reason: str) -> None:
        """Go on as before, because it is not known whether another server is active.

        Args:
            reason: The reason why it is not known, for the clients of a server that does not know of any.
        """
        self._reason = reason

    def handler(self, method: str) -> Handler:
        """Return a handler that forwards, reads or refuses."""
        return bytes_handler(partial(self._read if method in self._reads else self._forward, method))

    def check(self) -> None:
        """Do nothing: a standby server changes nothing."""

    def end_streams(self) -> None:
        """Close the connection to the active server, which ends the streams."""
        self.follow(None, "this server is stopping")

    async def _forward(self, method: str, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        active = self._active
        if active is None or _was_forwarded(context):
            # Another standby server would not hear of a refusal before it has sent the request.
            await anext(requests, None)
            # A server that forwards a call to another one that waits, too, has not heard yet who is active.
            reason = self._reason or "the server that was active a moment ago is not so any more"
            raise FlussTieringError(ErrorCode.UNAVAILABLE, f"no server is active: {reason}; try again in a moment")
        forwarded = requests if method in STREAMED_REQUESTS else await anext(requests)
        call = active.call(method, forwarded, context, context.time_remaining())
        async for response in active.answers(call, context):
            yield response

    async def _read(self, method: str, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        request = await anext(requests)
        if self._active is not None and not _was_forwarded(context):
            try:
                yield await self._ask(self._active, method, request, context)
            except _NoAnswerError:
                pass
            else:
                return
        handler: Any = self._reads[method]
        response = await handler.unary_unary(decoded(handler.request_deserializer, request, method), context)
        yield response if isinstance(response, bytes) else handler.response_serializer(response)

    async def _ask(self, active: ActiveServer, method: str, request: bytes, context: Context) -> bytes:
        left = context.time_remaining()
        timeout = _READ_TIMEOUT_S if left is None else min(_READ_TIMEOUT_S, left)
        call = active.call(method, request, context, timeout)
        try:
            responses = [response async for response in call]
        except grpc.aio.AioRpcError as error:
            if error.code() in _NO_ANSWER or gave_no_answer(error) or self._active is not active:
                raise _NoAnswerError from error
            await active.fail(error, context)
        except asyncio.CancelledError:
            if self._active is active:
                raise
            raise _NoAnswerError from None
        return b"".join(responses)

    def _close(self, active: ActiveServer) -> None:
        task = asyncio.ensure_future(active.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _NoAnswerError(Exception):
    """The active server did not answer in time."""


def _was_forwarded(context: Context) -> bool:
    return any(key == FORWARDED_KEY for key, _ in context.invocation_metadata() or ())
