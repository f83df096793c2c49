"""Limits of calls: how many are answered at once, and how large a request may be before it is decoded.

Floods, slow readers and callers that take more than their share are left to a proxy in front of the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.server.edge.handlers import Passage, surrounded

if TYPE_CHECKING:
    from fluss_tiering.server.edge.handlers import Context, Handler

_ROWS: Final = "/fluss_tiering.v1.Tables/WriteRows"
"""The method whose requests carry rows, which are not converted one by one."""
_TIERING: Final = "/fluss_tiering.v1.LakeTiering/"
OF_BUCKETS: Final = frozenset({f"{_TIERING}PrepareLakeTableSnapshot", f"{_TIERING}CommitLakeTableSnapshot"})
"""Methods whose requests name each bucket of a table, of which there may be a quarter of a million."""
REQUEST_BYTES: Final = 1 << 20
"""The largest size of any other request. Ten thousand paths fit, and a million empty entries do not."""
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
        limit, why = self.request_bytes, "max-request-bytes allows"
        if method == _ROWS:
            limit, why = self.message_bytes, "max-message-bytes allows"
        elif method not in OF_BUCKETS and limit > REQUEST_BYTES:
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
