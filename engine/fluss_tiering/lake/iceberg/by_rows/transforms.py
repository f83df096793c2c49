"""The executor's side of partition transforms: which partition each row belongs to.

The values are those of Iceberg's table spec (Partition Transforms), as its `ContentFileParser` takes them in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.micros import column_of
from fluss_tiering.lake.files import RowPartition
from fluss_tiering.lake.names import quoted
from fluss_tiering.model.data_type import DataType, DataTypeRoot
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.partition_by import PartitionTransform, expected_type
from fluss_tiering.model.table import TableInfo

_MICROS: Final = {"day": 86_400_000_000, "hour": 3_600_000_000}
_SHORT: Final = 1 << 16
_CALENDAR: Final = {"year": "datetime64[Y]", "month": "datetime64[M]"}


@dataclass(frozen=True, slots=True)
class RowTransform:
    """A transform of a column, with the place and the type of the column.

    Attributes:
        index: The place of the column in the table.
    """

    index: int
    data_type: DataType
    transform: PartitionTransform

    def values(self, column: pa.Array) -> pa.Array:
        """Return the partition value of each row: whole numbers, texts or booleans, or null."""
        number = self.transform.number or 1
        match self.transform.name:
            case "identity":
                return column.cast(pa.int32()) if pa.types.is_date(column.type) else column
            case "truncate" if self.data_type.root in {DataTypeRoot.STRING, DataTypeRoot.CHAR}:
                # Arrow counts code points here, whatever the name says.
                return pc.utf8_slice_codeunits(column, 0, number)
            case "truncate":
                whole = _numbers(column)
                found = whole - whole % number
                # Java's int begins anew at its other end, and so does numpy's.
                is_long = self.data_type.root is DataTypeRoot.BIGINT
                return _like(column, found if is_long else found.astype(np.int32).astype(np.int64))
            case "bucket":
                # Its compiled code takes a worker a while to load.
                from fluss_tiering.formats.bucketing import assign_buckets  # noqa: PLC0415

                buckets = assign_buckets(column.drop_null(), self.data_type, number)
                found = np.zeros(len(column), np.int64)
                found[column.is_valid().to_numpy(zero_copy_only=False)] = buckets
                return _like(column, found)
            case name:
                return _like(column, _of_time(name, column))

    def in_json(self, value: Any) -> Any:  # noqa: ANN401 - of any type
        """Return a partition value as Iceberg's JSON has it: a date is a text there."""
        is_date = self.transform.name == "day" or self.data_type.root is DataTypeRoot.DATE
        if value is None or not is_date or self.transform.name not in {"day", "identity"}:
            return value
        text = str(np.datetime64(value, "D"))
        year, month, day = text.rsplit("-", 2)
        # As Java reads it: four digits at least, and with a sign behind the year 9999.
        return f"-{year[1:]:0>4}-{month}-{day}" if year.startswith("-") else f"{'+' * (len(year) > 4)}{text}"


def computable(table: TableInfo, name: str, fields: Sequence[PartitionTransform]) -> tuple[RowTransform, ...]:
    """Return partition fields as executors compute them from the rows of a table.

    Args:
        name: The name of its lake table, for messages.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if one of them cannot be computed.
    """
    columns = {column.name: (number, column) for number, column in enumerate(table.descriptor.columns)}
    transforms = []
    for each in fields:
        number, column = columns.get(each.column, (0, None))
        if column is None or not each.takes(column.data_type):
            field = each.in_sql(quoted(each.column))
            raise FlussTieringError(
                ErrorCode.LAKE_TABLE_MISMATCH,
                f"the lake table {name} is partitioned by {field}, which rounds cannot compute: expected a column of "
                f"{table.path} of one of the types {expected_type(each)}; "
                f"ALTER TABLE {name} DROP PARTITION FIELD {field}",
            )
        transforms.append(RowTransform(number, column.data_type, each))
    return tuple(transforms)


def rows_by_partition(
    columns: Sequence[pa.Array], transforms: Sequence[RowTransform]
) -> Iterator[tuple[RowPartition, Sequence[pa.Array]]]:
    """Yield the rows of each partition that they belong to. The order of the rows of a partition stays.

    Args:
        columns: The columns of the rows, those of the table first.
        transforms: The fields of the partition.
    """
    if not transforms:
        yield (), columns
        return
    encoded = [pc.dictionary_encode(each.values(columns[each.index]), null_encoding="encode") for each in transforms]
    first, *others = encoded
    numbers = first.indices.to_numpy()
    levels: list[tuple[Sequence[int], list[Any]]] = [(range(len(first.dictionary)), first.dictionary.to_pylist())]
    for each in others:
        known = each.dictionary.to_pylist()
        combined = numbers.astype(np.int64) * len(known) + each.indices.to_numpy()
        # Numbered once more, since few of the combinations occur, and the product of all could be too large.
        present = pc.dictionary_encode(column_of(pa.int64(), combined))
        numbers = present.indices.to_numpy()
        levels.append((present.dictionary.to_pylist(), known))
    partitions = [_partition(number, levels, transforms) for number in range(len(levels[-1][0]))]
    if len(partitions) == 1:
        yield partitions[0], columns
        return
    is_in_order = bool((numbers[1:] >= numbers[:-1]).all())
    # Numpy sorts numbers of 16 bits many times as fast.
    short = numbers.astype(np.uint16) if len(partitions) <= _SHORT else numbers
    order = numbers if is_in_order else np.argsort(short, kind="stable")
    start = 0
    for partition, count in zip(partitions, np.bincount(numbers).tolist(), strict=True):
        if is_in_order:
            yield partition, [column.slice(start, count) for column in columns]
        else:
            rows = column_of(pa.int64(), order[start : start + count])
            yield partition, [column.take(rows) for column in columns]
        start += count


def _partition(
    number: int, levels: Sequence[tuple[Sequence[int], Sequence[Any]]], transforms: Sequence[RowTransform]
) -> RowPartition:
    """Return the values of a partition by its number among the combinations of all fields."""
    partition: list[Any] = []
    for transform, (combinations, known) in zip(reversed(transforms), reversed(levels), strict=True):
        number, code = divmod(combinations[number], len(known))
        partition.insert(0, transform.in_json(known[code]))
    return tuple(partition)


def _of_time(name: str, column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the years, months, days or hours since 1970 of dates and timestamps."""
    if pa.types.is_date(column.type):
        micros = _numbers(column.cast(pa.int32())) * _MICROS["day"]
    else:
        # Rounded down, also before 1970: a cast of nanoseconds to microseconds would round towards it.
        parts = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[column.type.unit]
        micros = _numbers(column.cast(pa.int64())) * parts
        micros = micros // 1_000 if column.type.unit == "ns" else micros
    if name in _MICROS:
        return micros // _MICROS[name]
    return micros.astype("datetime64[us]").astype(_CALENDAR[name]).astype(np.int64)


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _like(column: pa.Array, values: npt.NDArray[np.int64]) -> pa.Array:
    """Return numbers that are null where a column is."""
    found = column_of(pa.int64(), values)
    return pc.if_else(column.is_valid(), found, None) if column.null_count else found
