"""Limits of calls, checked before a request is converted: its size, and the number of calls at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.rpc.handlers import wrapped

if TYPE_CHECKING:
    from fluss_tiering.server.rpc.handlers import Behaviour, Context, Handler

_ROWS: Final = frozenset({"/fluss_tiering.v1.Tables/WriteRows"})
"""Methods whose requests are mostly rows, which are not converted one by one."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of calls, which an operator sets.

    Attributes:
        request_bytes: The largest size of a request without rows.
        message_bytes: The largest size of a request with rows.
        concurrent_calls: The largest number of calls that are answered at once, streams included.
    """

    request_bytes: int
    message_bytes: int
    concurrent_calls: int


class LimitedCalls:
    """Refuses calls that are beyond the limits. It is used on the event loop only.

    A call that is refused costs little. Converting 64 MiB of small entries would keep the event loop from all other
    calls for half a minute.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._running = 0

    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return a handler of serialized requests that refuses what is beyond the limits."""

        def unary(behaviour: Behaviour) -> Behaviour:
            async def handle(message: bytes, context: Context) -> object:
                with self._counted():
                    self._check(message, method)
                    return await behaviour(message, context)

            return handle

        def streaming(behaviour: Behaviour) -> Behaviour:
            async def handle(messages: Any, context: Context) -> AsyncIterator[object]:  # noqa: ANN401 - one or many
                with self._counted():
                    if handler.request_streaming:
                        messages = self._checked(messages, method)
                    else:
                        self._check(messages, method)
                    async for response in behaviour(messages, context):
                        yield response

            return handle

        return wrapped(handler, unary, streaming)

    async def _checked(self, messages: AsyncIterator[bytes], method: str) -> AsyncIterator[bytes]:
        async for message in messages:
            self._check(message, method)
            yield message

    def _check(self, message: bytes, method: str) -> None:
        has_rows = method in _ROWS
        limit = self._limits.message_bytes if has_rows else self._limits.request_bytes
        if len(message) > limit:
            setting = "max-message-bytes" if has_rows else "max-request-bytes"
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the request of {method.rpartition('/')[2]} has {len(message)} bytes, and {setting} allows {limit}: "
                "send several smaller requests",
            )

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._running >= self._limits.concurrent_calls:
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE,
                f"the server answers {self._running} calls, and max-concurrent-calls allows no more: try again later",
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
