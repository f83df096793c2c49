"""Written rows, grouped by their partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo

PartitionValues = tuple[str, ...]
_BETWEEN: Final = "\0"
"""The separator between the values of several partition keys. No name in Fluss contains it."""


def rows_by_partition(table: TableInfo, records: pa.RecordBatch) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """Yield the values of each partition with its rows, in their order.

    The rows of an unpartitioned table are yielded together, with no values.

    Raises:
        FlussTieringError: INVALID_ROWS if a partition key is not a STRING column, or if a value of it is null or has a
            NUL character.
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
            "expected STRING, the only type by which lake tables in Fluss are partitioned; write with Fluss's client",
        )
    if values.null_count:
        raise FlussTieringError(ErrorCode.INVALID_ROWS, f"the partition key {key!r} is null in a row: expected a value")
    if pc.any(pc.match_substring(values, _BETWEEN)).as_py():
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS, f"the partition key {key!r} has a NUL character in a row: expected printable text"
        )
    return values
