"""The partitions that rows of a write belong to, which are made where they are missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.fluss.calls.tables import Partition, create_partition, list_partitions
from fluss_tiering.storage.fluss.client import FlussClient

_MAX_TABLES: Final = 1000
_BETWEEN: Final = "\0"
"""Values of several partition keys; in none of Fluss's names."""
Values = tuple[str, ...]


class PartitionIds:
    """Partition ids by values, as last heard of; safe under concurrent calls."""

    def __init__(self, client: FlussClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[int, dict[Values, int]] = {}

    def of(self, table: TableInfo, wanted: Sequence[Values]) -> Mapping[Values, int]:
        """The ids of partitions, of which missing ones are made first.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST; INVALID_REQUEST for values that Fluss takes in no partition's name.
        """
        known = self._known.get(table.table_id, {})
        if not known.keys() >= set(wanted):
            known = self._ask(table)
            missing = set(wanted) - known.keys()
            for values in sorted(missing):
                spec = dict(zip(table.descriptor.partition_keys, values, strict=True))
                self._client.call(create_partition(table.path, spec, ignore_if_exists=True))
            if missing:
                known = self._ask(table)
        return known

    def forget(self, table_id: int) -> None:
        """Partitions of the table may have been dropped."""
        with self._lock:
            self._known.pop(table_id, None)

    def _ask(self, table: TableInfo) -> dict[Values, int]:
        partitions = self._client.call(list_partitions(table.path))
        known = {_values(table, each): each.partition_id for each in partitions}
        with self._lock:
            if len(self._known) >= _MAX_TABLES:
                self._known.clear()
            self._known[table.table_id] = known
        return known


def rows_by_partition(table: TableInfo, records: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of each partition, in their order; of a table without partitions all of them under no values.

    Raises:
        FlussTieringError: INVALID_ROWS for a null in a partition key.
    """
    keys = table.descriptor.partition_keys
    if not keys:
        yield (), records
        return
    columns = [_texts(table, records, key) for key in keys]
    names = pc.binary_join_element_wise(*columns, _BETWEEN) if len(columns) > 1 else columns[0]
    numbered = names.dictionary_encode()
    for number, name in enumerate(numbered.dictionary.to_pylist()):
        yield tuple(name.split(_BETWEEN)), records.filter(pc.equal(numbered.indices, number))


def _texts(table: TableInfo, records: pa.RecordBatch, key: str) -> pa.StringArray:
    values = records.column(key)
    if not pa.types.is_string(values.type):
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"table {table.path} is partitioned by {key!r}, which is {table.descriptor.column(key).data_type}: "
            "expected STRING, the only type that lake tables in Fluss are partitioned by; write with a client of Fluss",
        )
    if values.null_count:
        raise FlussTieringError(ErrorCode.INVALID_ROWS, f"the partition key {key!r} is null in a row: expected a value")
    if pc.any(pc.match_substring(values, _BETWEEN)).as_py():
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS, f"the partition key {key!r} has a NUL character in a row: expected printable text"
        )
    return values


def _values(table: TableInfo, partition: Partition) -> Values:
    return tuple(partition.values[key] for key in table.descriptor.partition_keys)
