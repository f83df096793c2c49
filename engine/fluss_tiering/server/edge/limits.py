"""Limits of calls: how many are answered at once, and how large a request may be before it is decoded.

Floods, slow readers and callers that take more than their share are left to a proxy in front of the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fluss_tiering.api.v1 import access_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.server.edge.handlers import Passage, surrounded
from fluss_tiering.server.edge.methods import REQUEST_SIZES

if TYPE_CHECKING:
    from fluss_tiering.server.edge.handlers import Context, Handler

REQUEST_BYTES: Final = 1 << 20
"""The largest size of a request of no declared size. Ten thousand paths fit, and a million empty entries do not."""
_RETRY_MS: Final = 500


@dataclass(slots=True)
class CallLimits:
    """Refuses calls that are beyond the limits. It is used on the event loop only.

    Attributes:
        concurrent_calls: The largest number of calls that are answered at once, streams included.
        request_bytes: The largest size of a request without rows.
        message_bytes: The largest size of a request with rows.
    """

    concurrent_calls: int
    request_bytes: int
    message_bytes: int
    _running: int = 0

    def wrap(self, handler: Handler) -> Handler:
        """Return a handler that counts its calls as long as they run, and refuses those of which there are too many."""
        return surrounded(handler, self._counted)

    def check_size(self, message: bytes, method: str) -> None:
        """Check the size of a request before it is decoded.

        Raises:
            FlussTieringError: INVALID_REQUEST if it is too large.
        """
        size, limit, why = REQUEST_SIZES[method], self.request_bytes, "max-request-bytes allows"
        if size == access_pb2.PB_REQUEST_SIZE_ROWS:
            limit, why = self.message_bytes, "max-message-bytes allows"
        elif size != access_pb2.PB_REQUEST_SIZE_BUCKETS and limit > REQUEST_BYTES:
            limit, why = REQUEST_BYTES, "such a request may have"
        if len(message) > limit:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the request of {method.rpartition('/')[2]} has {len(message)} bytes, and {why} {limit}: "
                "send several smaller requests",
            )

    @asynccontextmanager
    async def _counted(self, passage: Passage, context: Context) -> AsyncIterator[None]:
        del passage, context
        if self._running >= self.concurrent_calls:
            raise ThrottledError(
                f"the server answers {self._running} calls, and max-concurrent-calls allows no more: try again later",
                _RETRY_MS,
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
