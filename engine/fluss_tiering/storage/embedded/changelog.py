"""The changes that a write to a primary-key table makes: Fluss's changelog and the rows by key (Fluss's `KvTablet`).

An upsert of a new key gives INSERT. An upsert of a known key gives UPDATE_BEFORE with the old row and UPDATE_AFTER with
the new row, also if both are equal. A delete of a known key gives DELETE with the old row, and a delete of an unknown
key gives nothing. Several changes of one key in a write have the same effect as one write for each of them.

The code works on whole columns: rows are sorted by key, so that the rows of one key are next to each other, and the
changelog is taken by index from the new and the old rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.compacted.row import decode_stored, encode_values
from fluss_tiering.formats.grouping import last_per_key
from fluss_tiering.formats.keys import encode_keys
from fluss_tiering.formats.log.batch import ChangeType, ChangeTypes
from fluss_tiering.formats.stored_schemas import StoredSchemas
from fluss_tiering.model.table import Column, TableInfo
from fluss_tiering.storage.embedded.rocksdb import StoreChanges

Lookup = Callable[[Sequence[bytes]], list[bytes | None]]
"""A function that returns the stored values of keys."""
_Indices = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """The effect of one write on a bucket.

    Attributes:
        records: The records of the changelog, in log order and in the table's Arrow schema.
        change_types: The change type of each record.
        by_key: The same changes by key, for the store.
        added_rows: The number of keys that the write adds; negative if it removes keys.
    """

    records: pa.RecordBatch
    change_types: ChangeTypes
    by_key: StoreChanges
    added_rows: int


class ChangelogBuilder:
    """Works out the changes that the writes to one table make."""

    def __init__(self, info: TableInfo) -> None:
        descriptor = info.descriptor
        self._columns = descriptor.columns
        self._key = descriptor.physical_primary_key
        self._key_columns: Sequence[Column] = [descriptor.column(name) for name in descriptor.physical_primary_key]
        self._schema_id = info.schema_id
        self._schemas = StoredSchemas(info)

    def upsert(self, records: pa.RecordBatch, lookup: Lookup) -> Change:
        """Return the effect of upserting records, which are in the table's Arrow schema."""
        groups = _Groups(encode_keys(records, self._key_columns))
        keys = groups.keys.to_pylist()
        stored = pa.array(lookup(keys), pa.binary())
        exists = _flags(stored.is_valid())
        previous = groups.previous_rows(_positions_after(records.num_rows, exists))
        taken, change_types = _interleave(previous)
        return Change(
            pa.concat_batches([records, self._records(stored.drop_null())]).take(pa.array(taken)),
            change_types,
            StoreChanges(keys, self._values(records, groups.last_rows), ()),
            len(exists) - int(exists.sum()),
        )

    def delete(self, records: pa.RecordBatch, lookup: Lookup) -> Change:
        """Return the effect of deleting the keys in records, which have at least the key columns."""
        groups = _Groups(encode_keys(records, self._key_columns))
        stored = pa.array(lookup(groups.keys.to_pylist()), pa.binary())
        exists = _flags(stored.is_valid())
        deleted = groups.keys.filter(pa.array(exists)).to_pylist()
        as_written = np.argsort(groups.first_rows[exists])
        return Change(
            self._records(stored.drop_null()).take(pa.array(as_written)),
            np.full(len(deleted), ChangeType.DELETE, np.uint8),
            StoreChanges((), (), deleted),
            -len(deleted),
        )

    def replay(self, records: pa.RecordBatch, change_types: ChangeTypes) -> tuple[StoreChanges, int]:
        """Return the changes by key that records of the changelog make, and how many rows they add."""
        rows = last_per_key(records, self._key, change_types)
        lives = change_types[rows] != ChangeType.DELETE
        put, deleted = rows[lives], rows[~lives]
        changes = StoreChanges(self._keys(records, put), self._values(records, put), self._keys(records, deleted))
        inserted = np.count_nonzero(change_types == ChangeType.INSERT)
        return changes, int(inserted - np.count_nonzero(change_types == ChangeType.DELETE))

    def key_of_value(self, value: bytes) -> bytes:
        """Return the key of a stored value."""
        key: bytes = encode_keys(self._records(pa.array([value], pa.binary())), self._key_columns)[0].as_py()
        return key

    def _records(self, values: pa.BinaryArray) -> pa.RecordBatch:
        return decode_stored(values, self._schemas)

    def _keys(self, records: pa.RecordBatch, rows: _Indices) -> list[bytes]:
        keys: list[bytes] = encode_keys(records.take(pa.array(rows)), self._key_columns).to_pylist()
        return keys

    def _values(self, records: pa.RecordBatch, rows: _Indices) -> list[bytes]:
        values: list[bytes] = encode_values(records.take(pa.array(rows)), self._columns, self._schema_id).to_pylist()
        return values


class _Groups:
    """Rows sorted by key. The rows of one key keep their order.

    Attributes:
        keys: Each key once, sorted.
        first_rows: The index of the first row of each key.
        last_rows: The index of the last row of each key.
    """

    def __init__(self, keys: pa.BinaryArray) -> None:
        indices = pc.array_sort_indices(keys)
        ordered = keys.take(indices)
        self._order: _Indices = indices.to_numpy().astype(np.int64)
        self._starts: _Flags = np.ones(len(keys), np.bool_)
        self._starts[1:] = _flags(pc.not_equal(ordered[1:], ordered[:-1]))
        ends = np.ones(len(keys), np.bool_)
        ends[:-1] = self._starts[1:]
        self.keys: pa.BinaryArray = ordered.filter(pa.array(self._starts))
        self.first_rows: _Indices = self._order[self._starts]
        self.last_rows: _Indices = self._order[ends]

    def previous_rows(self, before_first: _Indices) -> _Indices:
        """Return for each row the row of its key before it; for the first row of a key the value in `before_first`."""
        previous = np.empty_like(self._order)
        previous[1:] = self._order[:-1]
        previous[self._starts] = before_first
        by_row = np.empty_like(previous)
        by_row[self._order] = previous
        return by_row


def _positions_after(count: int, exists: _Flags) -> _Indices:
    """Return the index of each key's old row, if old rows follow `count` new rows; -1 for a key without an old row."""
    return np.where(exists, count + np.cumsum(exists) - 1, -1)


def _interleave(previous: _Indices) -> tuple[_Indices, ChangeTypes]:
    """Return the rows of the changelog and their change types: each new row, after the row that it replaces, if any."""
    updates = previous >= 0
    after = np.cumsum(1 + updates) - 1
    before = after[updates] - 1
    size = int(after[-1]) + 1 if len(after) else 0
    taken = np.empty(size, np.int64)
    change_types = np.empty(size, np.uint8)
    taken[after] = np.arange(len(previous))
    change_types[after] = np.where(updates, ChangeType.UPDATE_AFTER, ChangeType.INSERT)
    taken[before] = previous[updates]
    change_types[before] = ChangeType.UPDATE_BEFORE
    return taken, change_types


def _flags(array: pa.BooleanArray) -> _Flags:
    flags: _Flags = array.to_numpy(zero_copy_only=False)
    return flags
