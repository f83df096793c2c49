"""A scan of a bucket's rows in a session of its leader, for a client of the tiering server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.kv_scan import value_sizes
from fluss_tiering.storage.fluss.reading.scan_session import BATCH_BYTES, ScanSession
from fluss_tiering.storage.protocol import KvScanBatch

_POSITION_BYTES: Final = 8


class SessionKvScan:
    """A `KvScan` over a session, which gives each row once.

    It holds the rows of one answer of the leader. So a client can read its last batch again, and the next one, but no
    earlier one.

    Attributes:
        log_offset: The first offset of the log that is not in the scan.
    """

    def __init__(
        self,
        *,
        bucket: TableBucket,
        session: ScanSession,
        present: Callable[[pa.BinaryArray], pa.BinaryArray],
        release: Callable[[SessionKvScan], object],
        on_lost: Callable[[], None],
    ) -> None:
        """Begin a scan before the first row.

        Args:
            bucket: The bucket.
            session: The session, which the scan closes.
            present: A function that turns stored values into those of the table's present schema.
            release: A function that is called once, when the scan is closed.
            on_lost: A function that is called if the session was lost, or if the storage is closed.
        """
        self.log_offset = session.log_offset
        self._bucket = bucket
        self._session = session
        self._present = present
        self._release = release
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._closed = False
        self._held: pa.BinaryArray = pa.array([], pa.binary())
        self._first_held = 0
        self._given = 0

    def read(self, position: bytes | None, max_bytes: int | None, max_rows: int | None) -> KvScanBatch:
        """Return the rows from a position on; see `KvScan.read`.

        The position must be that of the last batch or of the next one.

        Raises:
            FlussTieringError: SCANNER_EXPIRED if the scan is closed, or if its session was lost; INVALID_REQUEST for
                another position; CORRUPT_DATA if stored rows are damaged; STORAGE if they cannot be read; INVALID_TABLE
                if the table's columns have changed.
        """
        with self._lock:
            if self._closed:
                raise FlussTieringError(
                    ErrorCode.SCANNER_EXPIRED,
                    f"the scan of {self._bucket} has ended: its storage was closed, or its session was lost; start the "
                    "scan again",
                )
            self._go_to(position)
            if not len(self._held) and self._session.has_more:
                self._held = self._fetch(BATCH_BYTES if max_bytes is None else max_bytes)
            count = len(self._held) if max_rows is None else min(len(self._held), max_rows)
            if max_bytes is not None:
                fitting = int(np.searchsorted(value_sizes(self._held), max_bytes, side="right"))
                count = min(count, max(fitting, 1))
            self._given = count
            more = count < len(self._held) or self._session.has_more
            following = (self._first_held + count).to_bytes(_POSITION_BYTES) if more else None
            return KvScanBatch(self._held.slice(0, count), following)

    def close(self) -> None:
        """End the session, after a read that is under way. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._held = pa.array([], pa.binary())
            self._session.close()
        self._release(self)

    def lose(self) -> None:
        """Close the scan because the storage is closed, and tell the one who opened it."""
        self.close()
        self._on_lost()

    def _go_to(self, position: bytes | None) -> None:
        row = 0 if position is None else int.from_bytes(position)
        if row == self._first_held + self._given:
            self._held, self._first_held, self._given = self._held.slice(self._given), row, 0
        elif row != self._first_held:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the scan of {self._bucket} was asked for row {row}: expected {self._first_held} or "
                f"{self._first_held + self._given}, since a session gives each row once",
            )

    def _fetch(self, max_bytes: int) -> pa.BinaryArray:
        try:
            return self._present(self._session.take(max_bytes))
        except BaseException:
            # The session has moved on, but the scan's reader has not.
            self._closed = True
            self._session.close()
            self._release(self)
            self._on_lost()
            raise
