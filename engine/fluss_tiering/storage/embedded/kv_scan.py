"""A scan of a bucket's rows as of one moment. Between reads it keeps a view of RocksDB but no rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
from rocksdict import RdictIter

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.embedded.rocksdb import RocksDbView, damaged_rocksdb, reporting_rocksdb_errors
from fluss_tiering.storage.protocol import KvScanBatch

_OFFSET_BYTES: Final = 4
"""The size that each value takes in a batch besides its bytes: an offset of the Arrow array."""


class EmbeddedKvScan:
    """A `KvScan` over one store. It ends by `close`, or when the bucket closes the store.

    Attributes:
        log_offset: The first offset of the log that is not in the scan.
    """

    def __init__(
        self,
        *,
        bucket: TableBucket,
        folder: Path,
        view: RocksDbView,
        log_offset: int,
        key_of_value: Callable[[bytes], bytes],
        forget: Callable[[EmbeddedKvScan], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Begin a scan before the first row.

        Args:
            folder: The folder of the bucket's RocksDB, for errors.
            view: The view of the bucket's rows.
            log_offset: The end of the log at the moment of the view.
            key_of_value: A function that returns the key of a stored value.
            forget: A function that is called when the scan is closed.
            on_lost: A function that is also called if the scan is closed because its bucket goes away.
        """
        self.log_offset = log_offset
        self._bucket = bucket
        self._folder = folder
        self._view: RocksDbView | None = view
        self._key_of_value = key_of_value
        self._forget = forget
        self._on_lost = on_lost
        self._lock = threading.Lock()
        # The position at which the view's quick iterator continues; empty if it cannot continue after a failed read.
        self._continues_at: Collection[bytes | None] = (None,)
        # The row that the quick iterator has read already but that no batch holds yet.
        self._read_ahead: list[bytes] = []

    def read(self, position: bytes | None, max_bytes: int | None, max_rows: int | None) -> KvScanBatch:
        """Return the rows from a position on; see `KvScan.read`."""
        with self._lock:
            if self._view is None:
                raise FlussTieringError(
                    ErrorCode.SCANNER_EXPIRED,
                    f"the scan of {self._bucket} has ended: its storage was closed or reopened; start the scan again",
                )
            with reporting_rocksdb_errors(self._folder):
                if position in self._continues_at:
                    return self._continue(self._view, position, max_bytes, max_rows)
                rows = _rows_from(self._view.cursor, position)
                values, _ = _take(rows, max_bytes, max_rows)
                return self._batch(self._view.cursor, values, position)

    def close(self) -> None:
        """Release the view, after a read that is under way. A second call does nothing."""
        with self._lock:
            self._view = None
            self._read_ahead = []
        self._forget(self)

    def lose(self) -> None:
        """Close the scan because its bucket goes away, and tell the one who opened it."""
        self.close()
        self._on_lost()

    def _continue(
        self, view: RocksDbView, position: bytes | None, max_bytes: int | None, max_rows: int | None
    ) -> KvScanBatch:
        """Read the next rows from the quick iterator, which serves a scan whose batches are asked for in order."""
        # If anything fails, the iterator has moved but the scan's reader has not.
        self._continues_at = ()
        rows = chain(self._read_ahead, view.values)
        values, self._read_ahead = _take(rows, max_bytes, max_rows)
        batch = self._batch(view.cursor, values, position)
        self._continues_at = () if batch.next_position is None else (batch.next_position,)
        return batch

    def _batch(self, cursor: RdictIter, values: list[bytes], position: bytes | None) -> KvScanBatch:
        """Return the values with the position of the row after them.

        An iterator over values stops at damage as it does at the end. So the last row is looked up again by its key,
        which its value gives, and then the row after it.
        """
        last_key = self._key_of_value(values[-1]) if values else position
        _seek(cursor, last_key)
        cursor.status()
        if not values or not cursor.valid() or cursor.key() != last_key or cursor.value() != values[-1]:
            raise damaged_rocksdb(
                self._folder, f"there is no row from key {position!r} on, or a row has the key of another row"
            )
        cursor.next()
        cursor.status()
        return KvScanBatch(pa.array(values, pa.binary()), cursor.key() if cursor.valid() else None)


def _take(rows: Iterator[bytes], max_bytes: int | None, max_rows: int | None) -> tuple[list[bytes], list[bytes]]:
    """Return the rows that fit, at least one, and the row that was read but did not fit.

    This is a loop over rows, which ends at exactly the right row. It costs less than making rocksdict's values does.
    """
    values: list[bytes] = []
    size = 0
    for value in rows:
        size += len(value) + _OFFSET_BYTES
        if max_bytes is not None and size > max_bytes and values:
            return values, [value]
        values.append(value)
        if len(values) == max_rows:
            break
    return values, []


def _rows_from(cursor: RdictIter, position: bytes | None) -> Iterator[bytes]:
    _seek(cursor, position)
    while cursor.valid():
        yield cursor.value()
        cursor.next()


def _seek(cursor: RdictIter, key: bytes | None) -> None:
    if key is None:
        cursor.seek_to_first()
    else:
        cursor.seek(key)
