"""A scan of a bucket's rows on a cluster: a KV snapshot that a lease pins, with the log behind it laid over it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.buffers import byte_strings
from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.protocol import KvScanBatch

_OFFSET_BYTES: Final = 4
"""Of each value in the Arrow array that a batch is."""


class ClusterKvScan:
    """A `KvScan` over rows that do not change; it ends with the storage, or before, by `close`.

    Attributes:
        log_offset: the log from here on is not in the scan (K5).
    """

    def __init__(
        self,
        *,
        bucket: TableBucket,
        log_offset: int,
        rows_from: Callable[[bytes | None], Generator[pa.RecordBatch, None, None]],
        keep: Callable[[], None],
        let_go: Callable[[ClusterKvScan], None],
        on_lost: Callable[[], None],
    ) -> None:
        """A scan that stands before the first row.

        Args:
            bucket: that is scanned.
            log_offset: the end of its log as of the scan.
            rows_from: the rows from a key on, by key, in the `ENTRY_SCHEMA`.
            keep: called at each read, so that what the rows are read from stays.
            let_go: called once, when the scan is closed.
            on_lost: called besides when it is closed because the storage is.
        """
        self.log_offset = log_offset
        self._bucket = bucket
        self._rows_from = rows_from
        self._keep = keep
        self._let_go = let_go
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._closed = False
        self._rows: _Rows | None = None

    @property
    def has_rows(self) -> bool:
        """Whether there is any, which is looked for now. Raises as `read`."""
        with self._lock:
            return self._rows_at(None).next_key is not None

    def read(self, position: bytes | None, max_bytes: int | None, max_rows: int | None) -> KvScanBatch:
        """The rows from a position on; see `KvScan.read`.

        Raises:
            FlussTieringError: SCANNER_EXPIRED, KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA, STORAGE, UNAVAILABLE.
        """
        with self._lock:
            if self._closed:
                raise FlussTieringError(
                    ErrorCode.SCANNER_EXPIRED,
                    f"the scan of {self._bucket} has ended: its storage was closed; start the scan again",
                )
            self._keep()
            rows = self._rows_at(position)
            try:
                values = rows.take(max_bytes, max_rows)
                return KvScanBatch(values, rows.next_key)
            except BaseException:
                # They have moved on, and the scan's reader has not.
                self._end_rows()
                raise

    def close(self) -> None:
        """Lets go of what the scan keeps, after the read that is under way; again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._end_rows()
        self._let_go(self)

    def lose(self) -> None:
        """Closes the scan because the storage is closed, and tells whoever opened it (K12)."""
        self.close()
        self._on_lost()

    def _rows_at(self, position: bytes | None) -> _Rows:
        """The rows where they stand, or anew: a client whose answer was lost asks for a batch again (K15)."""
        if self._rows is None or not self._rows.stands_at(position):
            self._end_rows()
            self._rows = _Rows(self._rows_from(position), first=position is None)
        return self._rows

    def _end_rows(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None


class _Rows:
    """Rows on their way, the first of them looked at already."""

    def __init__(self, batches: Generator[pa.RecordBatch, None, None], *, first: bool) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None
        self._at_first = first
        self._advance()

    @property
    def next_key(self) -> bytes | None:
        """Of the row that comes next; None at the end."""
        if self._left is None:
            return None
        key: bytes = self._left.column("key")[0].as_py()
        return key

    def stands_at(self, position: bytes | None) -> bool:
        """Whether the row at that position comes next."""
        return self._at_first if position is None else self.next_key == position

    def take(self, max_bytes: int | None, max_rows: int | None) -> pa.BinaryArray:
        """The values of the rows that come next, at least one where there is any."""
        taken: list[pa.BinaryArray] = []
        rows = size = 0
        while self._left is not None:
            values = self._left.column("value")
            ends = _sizes(values) + size
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
        """Lets go of what they are read from."""
        self._batches.close()

    def _advance(self) -> None:
        while self._left is None or self._left.num_rows == 0:
            self._left = next(self._batches, None)
            if self._left is None:
                return


def _sizes(values: pa.BinaryArray) -> Int64s:
    """What the first one, two and so on of the values take."""
    offsets, _ = byte_strings(values)
    ends: Int64s = (offsets[1:] - offsets[0]).astype(np.int64)
    ends += _OFFSET_BYTES * np.arange(1, len(values) + 1)
    return ends
