"""How long writers wait for a bucket whose storage is hard-pressed, as Fluss's own clients do.

A leader of Fluss 1.0 says with each write to a primary-key table how hard-pressed the bucket is, from 0 to 1. The next
write to the bucket waits the longer, the higher that is (`client.writer.kv-backpressure.max-throttle`). A leader that
refuses a write has done nothing, and is as hard-pressed as can be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError

ResultT = TypeVar("ResultT")

_LONGEST_PAUSE_S: Final = 3.0
_GIVE_UP_S: Final = 20.0
"""How long a write is repeated that the leader refuses. Clients of the tiering server wait for 30 s by default."""


class Backpressure:
    """The pauses before the next write to each bucket. It allows concurrent calls.

    Args:
        monotonic: The clock, in seconds.
        closed: An event that ends all pauses, set when the storage is closed.
    """

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, closed: threading.Event | None = None
    ) -> None:
        self._monotonic = monotonic
        self._closed = closed or threading.Event()
        self._not_before: dict[TableBucket, float] = {}

    def write(self, bucket: TableBucket, send: Callable[[], ResultT]) -> ResultT:
        """Send a write when the bucket may be written to, again while the leader refuses it, and return its result.

        Raises:
            FlussServerError: STORAGE_BACKPRESSURE_EXCEPTION if the leader has refused the write for 20 s; the errors of
                `send`.
            FlussTieringError: UNAVAILABLE if the storage is closed meanwhile.
        """
        give_up_at = self._monotonic() + _GIVE_UP_S
        while True:
            self._wait(bucket)
            try:
                return send()
            except FlussServerError as error:
                if error.fluss_error is not FlussError.STORAGE_BACKPRESSURE_EXCEPTION:
                    raise
                self.report(bucket, 1.0)
                if self._monotonic() >= give_up_at:
                    raise

    def report(self, bucket: TableBucket, pressure: float) -> None:
        """Set how long the next write to a bucket waits, by what its leader said after the last one (0 to 1)."""
        pause = _LONGEST_PAUSE_S * min(pressure, 1.0) ** 2
        if pressure > 0:
            self._not_before[bucket] = self._monotonic() + pause
        else:
            self._not_before.pop(bucket, None)

    def close(self) -> None:
        """End all pauses. Their writes fail."""
        self._closed.set()

    def _wait(self, bucket: TableBucket) -> None:
        pause = self._not_before.get(bucket, 0.0) - self._monotonic()
        if pause > 0 and self._closed.wait(pause):
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE, f"the storage was closed before {bucket} was written to: write the rows again"
            )
