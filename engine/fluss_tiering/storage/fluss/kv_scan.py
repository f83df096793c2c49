"""Scans of a bucket's rows on a cluster, for clients of the tiering server."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.buffers import byte_strings
from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.reading.scan_session import BATCH_BYTES, ScanSession
from fluss_tiering.storage.protocol import KvScanBatch

_OFFSET_BYTES: Final = 4
"""The size that each value takes in a batch besides its bytes: an offset of the Arrow array."""
_POSITION_BYTES: Final = 8


class ClosableScan(ABC):
    """A scan that ends by `close`, or when the storage is closed.

    Args:
        release: A function that is called once, when the scan is closed.
        on_lost: A function that is also called if the scan is closed because the storage is closed.
    """

    def __init__(self, bucket: TableBucket, release: Callable[[Any], object], on_lost: Callable[[], None]) -> None:
        self._bucket = bucket
        self._release = release
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Release what the scan holds, after a read that is under way. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._end()
        self._release(self)

    def lose(self) -> None:
        """Close the scan because the storage is closed, and tell the one who opened it."""
        self.close()
        self._on_lost()

    @abstractmethod
    def _end(self) -> None:
        """Release what the scan holds; the caller holds the lock."""

    def _require_open(self) -> None:
        if self._closed:
            raise FlussTieringError(
                ErrorCode.SCANNER_EXPIRED,
                f"the scan of {self._bucket} has ended: its storage was closed, or its session was lost; start the "
                "scan again",
            )


class ClusterKvScan(ClosableScan):
    """A `KvScan` over rows that do not change. It ends by `close`, or when the storage is closed.

    Attributes:
        log_offset: The first offset of the log that is not in the scan.
    """

    def __init__(
        self,
        *,
        bucket: TableBucket,
        log_offset: int,
        rows_from: Callable[[bytes | None], Generator[pa.RecordBatch, None, None]],
        renew: Callable[[], None],
        release: Callable[[ClusterKvScan], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Begin a scan before the first row.

        Args:
            log_offset: The end of the bucket's log as of the scan.
            rows_from: A function that yields the rows from a key on, ordered by key, in the `ENTRY_SCHEMA`.
            renew: A function that is called at each read, to renew the lease of the snapshot if it is time.
            release: A function that is called once, when the scan is closed.
            on_lost: A function that is also called if the scan is closed because the storage is closed.
        """
        super().__init__(bucket, release, on_lost)
        self.log_offset = log_offset
        self._rows_from = rows_from
        self._renew = renew
        self._rows: _Rows | None = None

    @property
    def has_rows(self) -> bool:
        """Whether there is any row, which is read now. Errors are those of `read`."""
        with self._lock:
            return self._rows_at(None).next_key is not None

    def read(self, position: bytes | None, max_bytes: int | None, max_rows: int | None) -> KvScanBatch:
        """Return the rows from a position on; see `KvScan.read`.

        Raises:
            FlussTieringError: SCANNER_EXPIRED if the scan is closed; KV_SNAPSHOT_NOT_EXIST if its snapshot exists no
                more; CORRUPT_DATA if stored rows are damaged; STORAGE if they cannot be read; UNAVAILABLE if the
                cluster cannot be reached.
        """
        with self._lock:
            self._require_open()
            self._renew()
            rows = self._rows_at(position)
            try:
                values = rows.take(max_bytes, max_rows)
                return KvScanBatch(values, rows.next_key)
            except BaseException:
                # The rows have moved on, but the scan's reader has not.
                self._end_rows()
                raise

    def _rows_at(self, position: bytes | None) -> _Rows:
        """Return the open rows, or open them again if a client whose answer was lost asks for an earlier batch."""
        if self._rows is None or not self._rows.is_at(position):
            self._end_rows()
            self._rows = _Rows(self._rows_from(position), first=position is None)
        return self._rows

    def _end(self) -> None:
        self._end_rows()

    def _end_rows(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None


class _Rows:
    """An iterator over rows that has read the next row already."""

    def __init__(self, batches: Generator[pa.RecordBatch, None, None], *, first: bool) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None
        self._at_first = first
        self._advance()

    @property
    def next_key(self) -> bytes | None:
        """The key of the next row; None at the end."""
        if self._left is None:
            return None
        key: bytes = self._left.column("key")[0].as_py()
        return key

    def is_at(self, position: bytes | None) -> bool:
        """Return whether the row at this position comes next."""
        return self._at_first if position is None else self.next_key == position

    def take(self, max_bytes: int | None, max_rows: int | None) -> pa.BinaryArray:
        """Return the values of the next rows, at least one if there is any."""
        taken: list[pa.BinaryArray] = []
        rows = size = 0
        while self._left is not None:
            values = self._left.column("value")
            ends = value_sizes(values) + size
            count = len(values) if max_rows is None else min(len(values), max_rows - rows)
            if max_bytes is not None:
                count = min(count, int(np.searchsorted(ends, max_bytes, side="right")))
            if count == 0 and taken:
                break
            count = max(count, 1)
            taken.append(values.slice(0, count))
            rows, size = rows + count, int(ends[count - 1])
            self._at_first = False
            whole = count == len(values)
            self._left = self._left.slice(count)
            self._advance()
            if not whole or rows == max_rows:
                break
        return pa.concat_arrays(taken) if taken else pa.array([], pa.binary())

    def close(self) -> None:
        """Close what the rows are read from."""
        self._batches.close()

    def _advance(self) -> None:
        while self._left is None or self._left.num_rows == 0:
            self._left = next(self._batches, None)
            if self._left is None:
                return


def value_sizes(values: pa.BinaryArray) -> Int64s:
    """Return the size that the first one, two and so on of the values take together."""
    offsets, _ = byte_strings(values)
    ends: Int64s = (offsets[1:] - offsets[0]).astype(np.int64)
    ends += _OFFSET_BYTES * np.arange(1, len(values) + 1)
    return ends


class SessionKvScan(ClosableScan):
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
            session: The session, which the scan closes.
            present: A function that turns stored values into those of the table's present schema.
            release: A function that is called once, when the scan is closed.
            on_lost: A function that is called if the session was lost, or if the storage is closed.
        """
        super().__init__(bucket, release, on_lost)
        self.log_offset = session.log_offset
        self._session = session
        self._present = present
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
            self._require_open()
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

    def _end(self) -> None:
        self._held = pa.array([], pa.binary())
        self._session.close()

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
