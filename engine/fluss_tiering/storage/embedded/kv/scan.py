"""A scan of a bucket's rows as of one moment: a view of its RocksDB and a place in it, and no rows between reads."""

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
from fluss_tiering.storage.embedded.kv.rocksdb import RocksDbView, damaged_rocksdb, reporting_rocksdb_errors
from fluss_tiering.storage.protocol import KvScanBatch

_OFFSET_BYTES: Final = 4
"""Of each value in the Arrow array that a batch is."""


class EmbeddedKvScan:
    """A `KvScan` over one store; it ends with the store, when the bucket closes it, or before, by `close`.

    Attributes:
        log_offset: the log from here on is not in the scan (K5).
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
        """A scan that stands before the first row.

        Args:
            bucket: that is scanned.
            folder: of its RocksDB, for errors.
            view: of its rows.
            log_offset: the log's end at the view's moment.
            key_of_value: the key under which a stored value stands.
            forget: called when the scan is closed.
            on_lost: called besides when it is closed because its bucket goes away.
        """
        self.log_offset = log_offset
        self._bucket = bucket
        self._folder = folder
        self._view: RocksDbView | None = view
        self._key_of_value = key_of_value
        self._forget = forget
        self._on_lost = on_lost
        self._lock = threading.Lock()
        # Where the view's quick iterator goes on; no longer anywhere (empty) once it was read from and the read failed.
        self._goes_on_at: Collection[bytes | None] = (None,)
        # A row that it has read already.
        self._read_ahead: list[bytes] = []

    def read(self, position: bytes | None, max_bytes: int | None, max_rows: int | None) -> KvScanBatch:
        """The rows from a position on; see `KvScan.read`. Raises SCANNER_EXPIRED, CORRUPT_DATA, STORAGE."""
        with self._lock:
            if self._view is None:
                raise FlussTieringError(
                    ErrorCode.SCANNER_EXPIRED,
                    f"the scan of {self._bucket} has ended: its storage was closed or reopened; start the scan again",
                )
            with reporting_rocksdb_errors(self._folder):
                if position in self._goes_on_at:
                    return self._go_on(self._view, position, max_bytes, max_rows)
                rows = _rows_from(self._view.cursor, position)
                values, _ = _take(rows, max_bytes, max_rows)
                return self._batch(self._view.cursor, values, position)

    def close(self) -> None:
        """Lets go of the view, after the read that is under way; again does nothing."""
        with self._lock:
            self._view = None
            self._read_ahead = []
        self._forget(self)

    def lose(self) -> None:
        """Closes the scan because its bucket goes away, and tells whoever opened it (K12)."""
        self.close()
        self._on_lost()

    def _go_on(
        self, view: RocksDbView, position: bytes | None, max_bytes: int | None, max_rows: int | None
    ) -> KvScanBatch:
        """What the quick iterator has next; the way of a scan whose batches all arrive."""
        # Should anything fail, the iterator has moved and the scan's reader has not.
        self._goes_on_at = ()
        rows = chain(self._read_ahead, view.values)
        values, self._read_ahead = _take(rows, max_bytes, max_rows)
        batch = self._batch(view.cursor, values, position)
        self._goes_on_at = () if batch.next_position is None else (batch.next_position,)
        return batch

    def _batch(self, cursor: RdictIter, values: list[bytes], position: bytes | None) -> KvScanBatch:
        """The values with where the rows behind them begin.

        Damage looks like the end to iterators over values (K16). So the last row is looked at once more by its key,
        which follows from its value, and then what is behind it.
        """
        last_key = self._key_of_value(values[-1]) if values else position
        _seek(cursor, last_key)
        cursor.status()
        if not values or not cursor.valid() or cursor.key() != last_key or cursor.value() != values[-1]:
            raise damaged_rocksdb(
                self._folder, f"no row from key {position!r} on, or one under another key than its own"
            )
        cursor.next()
        cursor.status()
        return KvScanBatch(pa.array(values, pa.binary()), cursor.key() if cursor.valid() else None)


def _take(rows: Iterator[bytes], max_bytes: int | None, max_rows: int | None) -> tuple[list[bytes], list[bytes]]:
    """The rows that fit, one at least, and the one that was read and did not.

    A loop over rows: it costs less than making each of rocksdict's values does, and ends exactly where it must.
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
