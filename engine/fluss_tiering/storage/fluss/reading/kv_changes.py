"""The changes that the log has made since a KV snapshot, by key, and their merge with the snapshot's entries.

The code works on whole columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.changelog import last_per_key
from fluss_tiering.formats.compacted.row import encode_values
from fluss_tiering.formats.log.batch import ChangeType, ChangeTypes, LogBatch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.fluss.primary_keys import encode_primary_keys
from fluss_tiering.storage.rocksdb_files import ENTRY_SCHEMA

_REDUCED_AT_BYTES: Final = 32 << 20
_ENTRIES_AT_ONCE: Final = 10_000


class KvChanges:
    """The last change of each key.

    Args:
        table: The table.
        batches: The batches of the log of one bucket, in the order of the log.
    """

    def __init__(self, table: TableInfo, batches: Iterable[LogBatch]) -> None:
        records, change_types = _last_changes(table, batches)
        keys = encode_primary_keys(table.descriptor, records)
        lives = pa.array(change_types != ChangeType.DELETE)
        values = encode_values(records, table.descriptor.columns, table.schema_id)
        order = pc.array_sort_indices(keys)
        self._keys: pa.BinaryArray = keys.take(order)
        # The value is None if the key is deleted.
        self._values: pa.BinaryArray = pc.if_else(lives, values, None).take(order)

    def over(self, entries: Iterable[pa.RecordBatch], from_key: bytes | None) -> Iterator[pa.RecordBatch]:
        """Yield the entries with the changes applied, ordered by key.

        Args:
            entries: The entries of the snapshot from `from_key` on, ordered by key, in the `ENTRY_SCHEMA`.
            from_key: The first wanted key; None for all.
        """
        at = 0 if from_key is None else self._position(from_key, inclusive=False)
        for batch in entries:
            if batch.num_rows == 0:
                continue
            end = self._position(batch.column("key")[-1].as_py(), inclusive=True)
            yield batch if end == at else self._merged(batch, at, end)
            at = end
        for start in range(at, len(self._keys), _ENTRIES_AT_ONCE):
            yield self._living(start, min(start + _ENTRIES_AT_ONCE, len(self._keys)))

    def _position(self, key: bytes, *, inclusive: bool) -> int:
        """Return the number of changed keys before a key, counting the key itself if `inclusive`."""
        position = bisect_right(self._keys, key, key=lambda each: each.as_py())
        if not inclusive and position > 0 and self._keys[position - 1].as_py() == key:
            return position - 1
        return position

    def _merged(self, batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
        changed = pc.is_in(batch.column("key"), value_set=self._keys.slice(start, end - start))
        merged = pa.concat_batches([batch.filter(pc.invert(changed)), self._living(start, end)])
        return merged.take(pc.array_sort_indices(merged.column("key")))

    def _living(self, start: int, end: int) -> pa.RecordBatch:
        keys, values = self._keys.slice(start, end - start), self._values.slice(start, end - start)
        lives = values.is_valid()
        return pa.RecordBatch.from_arrays([keys.filter(lives), values.filter(lives)], schema=ENTRY_SCHEMA)


def _last_changes(table: TableInfo, batches: Iterable[LogBatch]) -> tuple[pa.RecordBatch, ChangeTypes]:
    """Return the last change of each key. Older changes are dropped on the way, so that this needs little memory."""
    records = pa.RecordBatch.from_pylist([], schema=arrow_schema(table.descriptor.columns))
    change_types: ChangeTypes = np.empty(0, np.uint8)
    pending: list[LogBatch] = []
    pending_bytes = 0
    for batch in batches:
        pending.append(batch)
        pending_bytes += batch.records.nbytes
        if pending_bytes >= max(_REDUCED_AT_BYTES, records.nbytes):
            records, change_types = _reduced(table, records, change_types, pending)
            pending, pending_bytes = [], 0
    return _reduced(table, records, change_types, pending)


def _reduced(
    table: TableInfo, records: pa.RecordBatch, change_types: ChangeTypes, newer: Iterable[LogBatch]
) -> tuple[pa.RecordBatch, ChangeTypes]:
    newer = list(newer)
    all_records = pa.concat_batches([records, *(batch.records for batch in newer)])
    kinds = [change_types, *(batch.change_types for batch in newer if batch.change_types is not None)]
    all_types = np.concatenate(kinds)
    last = last_per_key(all_records, table.descriptor.primary_key, all_types)
    return all_records.take(pa.array(last)), all_types[last]
