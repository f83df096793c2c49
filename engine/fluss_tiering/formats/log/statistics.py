"""The statistics of a log batch: how many nulls some columns have, and their least and greatest values.

Fluss's clients write them from version 1.0 on, for log tables with the option `table.statistics.columns`. Their layout,
in little-endian order (Fluss's `LogRecordBatchStatisticsWriter`):

    version i8 = 1 · number of columns i16 · index of each column i16 · nulls of each column i32 ·
    size of the row of least values i32 · that row · size of the row of greatest values i32 · that row

A row has the columns in the order of the indexes (Fluss's `AlignedRow`): null bits behind 8 other bits, in words of 64
bits, then 8 bytes for each column. Values that do not fit there stand behind. A column without values has null in both
rows.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fluss_tiering.formats.log.batch import LogBatchHeader
from fluss_tiering.model.table import DataType, DataTypeRoot

StatisticsValue = int | float | bytes
"""A value as statistics have it and as it is compared.

A boolean is 0 or 1, a DATE days, a TIME milliseconds, a timestamp nanoseconds since the epoch, a DECIMAL its unscaled
number, and a STRING its UTF-8.
"""

_VERSION: Final = 1
_HEAD: Final = struct.Struct("<bh")
_SIZE: Final = struct.Struct("<i")
_SLOT: Final = 8
_ROW_HEADER_BITS: Final = 8
_WORD_BITS: Final = 64
_COMPACT_DECIMAL: Final = 18
_COMPACT_TIMESTAMP: Final = 3
"""The greatest precisions at which the value fits into 8 bytes."""
_INLINE: Final = 0x80
"""The bit of a slot's last byte that says that the slot holds the text itself, and its length in the other bits."""
_PAIR: Final = struct.Struct("<II")
_LONG: Final = struct.Struct("<q")
_NANOS_PER_MILLI: Final = 1_000_000
_NUMBERS: Final = {
    DataTypeRoot.BOOLEAN: struct.Struct("<b"),
    DataTypeRoot.TINYINT: struct.Struct("<b"),
    DataTypeRoot.SMALLINT: struct.Struct("<h"),
    DataTypeRoot.INT: struct.Struct("<i"),
    DataTypeRoot.BIGINT: _LONG,
    DataTypeRoot.FLOAT: struct.Struct("<f"),
    DataTypeRoot.DOUBLE: struct.Struct("<d"),
    DataTypeRoot.DATE: struct.Struct("<i"),
    DataTypeRoot.TIME: struct.Struct("<i"),
}
_TIMESTAMPS: Final = frozenset({DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ})
WITH_STATISTICS: Final = frozenset({*_NUMBERS, *_TIMESTAMPS, DataTypeRoot.STRING, DataTypeRoot.DECIMAL})
"""The types of which Fluss makes statistics."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What is known of a column in a batch.

    Attributes:
        null_count: The number of nulls.
        least: The least value; None if that is not known, for example since there are only nulls.
        greatest: The greatest value, or None.
    """

    null_count: int
    least: StatisticsValue | None
    greatest: StatisticsValue | None


def read_statistics(
    buffer: memoryview, position: int, header: LogBatchHeader, wanted: Mapping[int, DataType]
) -> dict[int, ColumnStatistics]:
    """Return the statistics of those wanted columns that have some.

    Statistics only save work, so the result is empty if they are damaged or of an unknown version.

    Args:
        buffer: The bytes of a log.
        position: The position of the batch.
        header: The header of the batch.
        wanted: The type of each wanted column, by its index in the table.
    """
    start = position + header.header_size
    try:
        return _read(bytes(buffer[start : start + header.statistics_size]), wanted)
    except (struct.error, ValueError, IndexError):
        return {}


def _read(data: bytes, wanted: Mapping[int, DataType]) -> dict[int, ColumnStatistics]:
    if not data:
        return {}
    version, count = _HEAD.unpack_from(data, 0)
    if version != _VERSION:
        raise ValueError(f"statistics of version {version}")
    counts_at = _HEAD.size + 2 * count
    indexes = struct.unpack_from(f"<{count}h", data, _HEAD.size)
    null_counts = struct.unpack_from(f"<{count}i", data, counts_at)
    least, end = _row(data, counts_at + 4 * count)
    greatest, _ = _row(data, end)
    return {
        index: ColumnStatistics(
            null_counts[place],
            _value(least, place, count, wanted[index]),
            _value(greatest, place, count, wanted[index]),
        )
        for place, index in enumerate(indexes)
        if index in wanted
    }


def _row(data: bytes, position: int) -> tuple[bytes, int]:
    """Return a row and the position after it."""
    (size,) = _SIZE.unpack_from(data, position)
    start = position + _SIZE.size
    if size < 0 or start + size > len(data):
        raise ValueError(f"a row of {size} bytes")
    return data[start : start + size], start + size


def _value(row: bytes, place: int, count: int, data_type: DataType) -> StatisticsValue | None:
    """Return a value of a row of `count` columns."""
    bit = place + _ROW_HEADER_BITS
    if row[bit // 8] >> bit % 8 & 1:
        return None
    bits_size = (count + _WORD_BITS - 1 + _ROW_HEADER_BITS) // _WORD_BITS * _SLOT
    slot = bits_size + place * _SLOT
    number = _NUMBERS.get(data_type.root)
    if number is not None:
        return _first(number, row, slot)
    if data_type.root in _TIMESTAMPS:
        if data_type.precision <= _COMPACT_TIMESTAMP:
            return _first(_LONG, row, slot) * _NANOS_PER_MILLI
        nanos, at = _PAIR.unpack_from(row, slot)
        return _first(_LONG, row, at) * _NANOS_PER_MILLI + int(nanos)
    if data_type.root is DataTypeRoot.DECIMAL:
        if data_type.precision <= _COMPACT_DECIMAL:
            return _first(_LONG, row, slot)
        return int.from_bytes(_behind(row, slot), "big", signed=True)
    if data_type.root is DataTypeRoot.STRING:
        last = row[slot + _SLOT - 1]
        return row[slot : slot + (last & ~_INLINE)] if last & _INLINE else _behind(row, slot)
    return None


def _first(layout: struct.Struct, row: bytes, position: int) -> int:
    (value,) = layout.unpack_from(row, position)
    return value  # type: ignore[no-any-return]  # an int or a float


def _behind(row: bytes, slot: int) -> bytes:
    """Return the bytes to which a slot points."""
    size, at = _PAIR.unpack_from(row, slot)
    if at + size > len(row):
        raise ValueError(f"{size} bytes at {at} of {len(row)}")
    return row[at : at + size]
