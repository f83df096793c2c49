"""The changes that the log has made since a KV snapshot, by key, and their merge with the snapshot's entries.

The code works on whole columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from fluss_tiering.formats.compacted.row import encode_values
from fluss_tiering.formats.grouping import last_per_key
from fluss_tiering.formats.log.batch import ChangeType, ChangeTypes, LogBatch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.files import temporary_folder
from fluss_tiering.storage.fluss.table_formats import encode_primary_keys
from fluss_tiering.storage.rocksdb_files import ENTRY_SCHEMA, entries_of

_REDUCED_AT_BYTES: Final = 16 << 20
"""The bytes of read changes at which older changes of the same keys are dropped."""
_SPILLED_AT_BYTES: Final = 32 << 20
"""The bytes of last changes above which they go to the disk."""
_CHUNK_BYTES: Final = 4 << 20
_CHANGES_IN_BATCH: Final = 10_000
_KEY: Final = methodcaller("as_py")
_PURPOSE: Final = "fluss-kv-changes"
_DELETED: Final = b""
"""It stands for a deleted row: the value of a row has at least the id of its schema."""
_WRITE_BUFFER_BYTES: Final = 16 << 20
_WRITTEN_BYTES: Final = 1 << 20
"""The bytes of changes that are written together, as Python's objects and in RocksDB's buffer."""
CHANGE_SCHEMA: Final = pa.schema([pa.field("key", pa.binary(), False), pa.field("value", pa.binary())])
"""Changes by key. The value is null if the row is deleted."""


class KvChanges:
    """The last change of each key. It needs bounded memory: what is more goes to a temporary folder.

    Args:
        batches: The batches of the log of one bucket, in the order of the log.

    Raises:
        FlussTieringError: STORAGE if the disk refuses; further errors are those of the batches.
    """

    def __init__(self, table: TableInfo, batches: Iterable[LogBatch]) -> None:
        self._spilled: SpilledChanges | None = None
        runs = _last_changes(table, batches)
        first = next(runs)
        try:
            for run in runs:
                if self._spilled is None:
                    self._spilled = SpilledChanges()
                    self._spilled.add(first)
                    first = pa.RecordBatch.from_pylist([], schema=CHANGE_SCHEMA)
                self._spilled.add(run)
        except BaseException:
            self.close()
            raise
        self._in_memory = first.sort_by("key")

    def over(self, entries: Iterable[pa.RecordBatch], from_key: bytes | None) -> Iterator[pa.RecordBatch]:
        """Yield the entries with the changes applied, ordered by key.

        Args:
            entries: The entries of the snapshot from `from_key` on, ordered by key, in the `ENTRY_SCHEMA`.
            from_key: The first wanted key; None for all.

        Raises:
            FlussTieringError: STORAGE if the disk refuses; further errors are those of the entries.
        """
        batches = self._batches(from_key)
        changes = next(batches, None)
        for batch in entries:
            left = batch
            while left.num_rows and changes is not None:
                last_key = min(_last_key(left), _last_key(changes))
                some, left = _split(left, last_key)
                changed, changes = _split(changes, last_key)
                yield _merged(some, changed)
                if changes.num_rows == 0:
                    changes = next(batches, None)
            if left.num_rows:
                yield left
        while changes is not None:
            yield _living(changes)
            changes = next(batches, None)

    def close(self) -> None:
        """Delete the temporary folder, if there is one. A second call does nothing."""
        if self._spilled is not None:
            self._spilled.close()

    def _batches(self, from_key: bytes | None) -> Iterator[pa.RecordBatch]:
        """Yield the changes from a key on, ordered by key, in the `CHANGE_SCHEMA`. No batch is empty."""
        if self._spilled is not None:
            yield from self._spilled.batches(from_key, _CHUNK_BYTES)
            return
        first = 0 if from_key is None else bisect_left(self._in_memory.column("key"), from_key, key=_KEY)
        for start in range(first, self._in_memory.num_rows, _CHANGES_IN_BATCH):
            yield self._in_memory.slice(start, _CHANGES_IN_BATCH)


def _last_key(batch: pa.RecordBatch) -> bytes:
    key: bytes = batch.column("key")[-1].as_py()
    return key


def _split(batch: pa.RecordBatch, last_key: bytes) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows up to a key, with the key itself, and the rows after it."""
    count = bisect_right(batch.column("key"), last_key, key=_KEY)
    return batch.slice(0, count), batch.slice(count)


def _merged(entries: pa.RecordBatch, changes: pa.RecordBatch) -> pa.RecordBatch:
    if changes.num_rows == 0:
        return entries
    if entries.num_rows == 0:
        return _living(changes)
    changed = pc.is_in(entries.column("key"), value_set=changes.column("key"))
    return pa.concat_batches([entries.filter(pc.invert(changed)), _living(changes)]).sort_by("key")


def _living(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that exist after the changes, in the `ENTRY_SCHEMA`."""
    lives = changes.column("value").is_valid()
    return pa.RecordBatch.from_arrays([column.filter(lives) for column in changes.columns], schema=ENTRY_SCHEMA)


def _last_changes(table: TableInfo, batches: Iterable[LogBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the last change of each key, in the `CHANGE_SCHEMA` and in no order.

    There is at least one result. A key that is in several results was changed by the last one of these last.
    """
    records, change_types = _no_changes(table)
    pending: list[LogBatch] = []
    pending_bytes = 0
    for batch in batches:
        pending.append(batch)
        pending_bytes += batch.records.nbytes
        if pending_bytes >= max(_REDUCED_AT_BYTES, records.nbytes):
            records, change_types = _reduced(table, records, change_types, pending)
            pending, pending_bytes = [], 0
            if records.nbytes > _SPILLED_AT_BYTES:
                yield _encoded(table, records, change_types)
                records, change_types = _no_changes(table)
    yield _encoded(table, *_reduced(table, records, change_types, pending))


def _no_changes(table: TableInfo) -> tuple[pa.RecordBatch, ChangeTypes]:
    return pa.RecordBatch.from_pylist([], schema=arrow_schema(table.descriptor.columns)), np.empty(0, np.uint8)


def _reduced(
    table: TableInfo, records: pa.RecordBatch, change_types: ChangeTypes, newer: Iterable[LogBatch]
) -> tuple[pa.RecordBatch, ChangeTypes]:
    newer = list(newer)
    all_records = pa.concat_batches([records, *(batch.records for batch in newer)])
    kinds = [change_types, *(batch.change_types for batch in newer if batch.change_types is not None)]
    all_types = np.concatenate(kinds)
    last = last_per_key(all_records, table.descriptor.primary_key, all_types)
    return all_records.take(pa.array(last)), all_types[last]


def _encoded(table: TableInfo, records: pa.RecordBatch, change_types: ChangeTypes) -> pa.RecordBatch:
    keys = encode_primary_keys(table.descriptor, records)
    lives = pa.array(change_types != ChangeType.DELETE)
    values = encode_values(records, table.descriptor.columns, table.schema_id)
    return pa.RecordBatch.from_arrays([keys, pc.if_else(lives, values, None)], schema=CHANGE_SCHEMA)


class SpilledChanges:
    """The last change of each key, on disk."""

    def __init__(self) -> None:
        """Make the folder.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        with ExitStack() as stack:
            self._folder = stack.enter_context(temporary_folder(_PURPOSE))
            with _reporting_errors(self._folder):
                self._db = Rdict(str(self._folder), _options())
            stack.callback(self._db.close)
            self._resources = stack.pop_all()
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True

    def add(self, changes: pa.RecordBatch) -> None:
        """Add changes, in the `CHANGE_SCHEMA`, each of another key. They replace older changes of the same keys.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        keys, values = changes.columns
        values = pc.fill_null(values, _DELETED)
        rows_at_once = max(1, _WRITTEN_BYTES * len(keys) // max(1, keys.nbytes + values.nbytes))
        for start in range(0, len(keys), rows_at_once):
            batch = WriteBatch(raw_mode=True)
            some = (array.slice(start, rows_at_once).to_pylist() for array in (keys, values))
            deque(map(batch.put, *some), maxlen=0)
            with _reporting_errors(self._folder):
                self._db.write(batch, self._write_options)

    def batches(self, from_key: bytes | None, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes from a key on, ordered by key, in the `CHANGE_SCHEMA`.

        Args:
            from_key: The first wanted key; None for all.
            chunk_bytes: The greatest size of a batch, unless its only change is larger.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        with _reporting_errors(self._folder):
            for batch in entries_of(self._db, from_key, None, chunk_bytes):
                keys, values = batch.columns
                living = pc.not_equal(pc.binary_length(values), len(_DELETED))
                yield pa.RecordBatch.from_arrays([keys, pc.if_else(living, values, None)], schema=CHANGE_SCHEMA)

    def close(self) -> None:
        """Delete the folder. A second call does nothing."""
        self._resources.close()


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_compression_type(DBCompressionType.lz4())
    return options


@contextmanager
def _reporting_errors(folder: Path) -> Iterator[None]:
    """Turn rocksdict's errors, which are plain `Exception`s, into STORAGE."""
    try:
        yield
    except FlussTieringError:
        raise
    except Exception as error:
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"the changes of a scan cannot be kept in {folder} ({str(error).strip()}): they did not fit into memory; "
            "check the disk of the temporary files, then start the scan again",
        ) from error
