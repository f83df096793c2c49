"""Rows cut into parts of bounded size, grouped by their partitions, and reduced to the last change of each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.formats.log.batch import ChangeType, ChangeTypes
from fluss_tiering.formats.micros import column_of
from fluss_tiering.model.data_type import DataTypeRoot
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo

_TOLERANCE: Final = 2
"""Parts are first cut by the average size of a row. A part is cut again if it is this many times too large."""


RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)
PartitionValues = tuple[str, ...]
_BETWEEN: Final = "\0"
"""The separator between the values of several partition keys. No name in Fluss contains it."""
Values: TypeAlias = pa.Array | pa.ChunkedArray
_FEW: Final = 1 << 20
"""The number of changes up to which loading pandas would take longer than it saves."""
NAMING: Final = frozenset(
    {
        DataTypeRoot.STRING,
        DataTypeRoot.CHAR,
        DataTypeRoot.BOOLEAN,
        DataTypeRoot.TINYINT,
        DataTypeRoot.SMALLINT,
        DataTypeRoot.INT,
        DataTypeRoot.BIGINT,
        DataTypeRoot.DATE,
    }
)
"""The types of partition keys by which rows are divided here."""


def parts_of(records: RowsT, max_bytes: int, max_rows: int | None = None) -> Iterator[RowsT]:
    """Yield consecutive parts of the rows, without a copy.

    The bytes of each part are counted. A part has at most twice `max_bytes`, or is a single row.

    Args:
        max_bytes: The wanted size of a part, as Arrow counts it (`RecordBatch.nbytes`).
        max_rows: The greatest number of rows in a part; None for no limit.
    """
    count = records.num_rows
    step = max(1, min(max_rows or count, count * max_bytes // max(records.nbytes, 1)))
    start = 0
    while start < count:
        part = records.slice(start, step)
        while part.num_rows > 1 and part.nbytes > _TOLERANCE * max_bytes:
            part = part.slice(0, part.num_rows // 2)
        yield part
        start += part.num_rows


def rows_by_partition(table: TableInfo, records: pa.RecordBatch) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """Yield the values of each partition with its rows, in their order.

    The rows of an unpartitioned table are yielded together, with no values.

    Raises:
        FlussTieringError: INVALID_ROWS if a partition key has a type whose values do not name partitions, or if a value
            of it is null or has a NUL character.
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
    """Return the names of partitions, which are as in Fluss (its `PartitionUtils`)."""
    data_type = table.descriptor.column(key).data_type
    if data_type.root not in NAMING:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"table {table.path} is partitioned by {key!r}, which is {data_type}: expected one of "
            f"{', '.join(sorted(NAMING))}; write with Fluss's client",
        )
    values = records.column(key).cast(pa.string())
    if values.null_count:
        raise FlussTieringError(ErrorCode.INVALID_ROWS, f"the partition key {key!r} is null in a row: expected a value")
    if pc.any(pc.match_substring(values, _BETWEEN)).as_py():
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS, f"the partition key {key!r} has a NUL character in a row: expected printable text"
        )
    return values


def last_per_key(records: pa.Table | pa.RecordBatch, key_names: Sequence[str], change_types: ChangeTypes) -> Int64s:
    """Find the last change of each key.

    A record with the type UPDATE_BEFORE is not a change of its own. It says how a row was before an update.

    Args:
        records: The changes of one bucket, in the order of the log.
        key_names: The names of the primary key columns. Two keys are equal if their bytes are equal.
        change_types: The `ChangeType` of each record.

    Returns:
        The index in `records` of the last change of each key, ascending. The row exists after the changes if that
        change is an INSERT or an UPDATE_AFTER. It does not exist if that change is a DELETE.
    """
    changes = np.flatnonzero(change_types != ChangeType.UPDATE_BEFORE)
    columns = [records.column(name) for name in key_names]
    if changes.size < records.num_rows:
        columns = [column.take(column_of(pa.int64(), changes)) for column in columns]
    few = changes.size <= _FEW and not any(pa.types.is_floating(column.type) or column.null_count for column in columns)
    return np.sort((_last_of_few if few else _last_of_many)(columns, changes))


def _last_of_many(columns: Sequence[Values], changes: Int64s) -> Int64s:
    keys = [f"key {position}" for position in range(len(columns))]
    table = pa.table([*columns, column_of(pa.int64(), changes)], names=[*keys, "change"])
    last: Int64s = table.group_by(keys, use_threads=False).aggregate([("change", "max")])["change_max"].to_numpy()
    return last


def _last_of_few(columns: Sequence[Values], changes: Int64s) -> Int64s:
    """Do the same without `group_by`, which loads pandas. That takes a worker longer than all of a small round."""
    if not changes.size:
        return changes
    numbers = _numbers(columns[0])
    for column in columns[1:]:
        more = _numbers(column)
        numbers = _numbers(column_of(pa.int64(), numbers * (more.max() + 1) + more))
    last = np.empty(numbers.max() + 1, np.int64)
    # Of several values for one place, NumPy keeps the last.
    last[numbers] = changes
    return last


def _numbers(column: Values) -> Int64s:
    """Number the distinct values from 0 on, and return the number of each value. `to_numpy` would load pandas, too."""
    encoded = column.dictionary_encode()
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    return np.concatenate([np.from_dlpack(chunk.indices) for chunk in chunks]).astype(np.int64)
