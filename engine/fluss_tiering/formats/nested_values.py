"""Nested values as compacted rows hold them, read one at a time (Fluss's `BinaryArray`, `BinaryMap`, `CompactedRow`).

An array is its count, bits for nulls in whole groups of 32, a slot of fixed width for each element, and behind them
what does not fit into a slot of eight bytes: the slot then has its place and length. A map is the length of its array
of keys, that array, and the array of values. A row within a row is laid out as that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from fluss_tiering.formats.schema import UNIT_PRECISION, time_unit
from fluss_tiering.model.data_type import DataType, DataTypeRoot, Field

_COMPACT_DECIMAL_DIGITS: Final = 18
_COMPACT_TIMESTAMP_DIGITS: Final = 3
_BITS_IN_GROUP: Final = 32
_LOW_32_BITS: Final = 0xFFFFFFFF
_MAX_VARINT_BYTES: Final = 10
_FIXED: Final = {
    DataTypeRoot.BOOLEAN: "<?",
    DataTypeRoot.TINYINT: "<b",
    DataTypeRoot.SMALLINT: "<h",
    DataTypeRoot.INT: "<i",
    DataTypeRoot.DATE: "<i",
    DataTypeRoot.TIME: "<i",
    DataTypeRoot.BIGINT: "<q",
    DataTypeRoot.FLOAT: "<f",
    DataTypeRoot.DOUBLE: "<d",
}
_TEXTS: Final = frozenset({DataTypeRoot.CHAR, DataTypeRoot.STRING})
_TIMESTAMPS: Final = frozenset({DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ})


def read_nested(data: bytes, data_type: DataType) -> Any:  # noqa: ANN401 - a value of any type
    """A value of a nested type as Arrow's constructors take it: maps as pairs, times and timestamps as counts.

    Raises:
        ValueError, IndexError, struct.error: when the bytes are none.
    """
    match data_type.root:
        case DataTypeRoot.ARRAY:
            return _array(data, data_type.fields[0].data_type)
        case DataTypeRoot.MAP:
            (keys_size,) = struct.unpack_from("<i", data)
            keys = _array(_part(data, 4, keys_size), data_type.fields[0].data_type)
            values = _array(data[4 + keys_size :], data_type.fields[1].data_type)
            return list(zip(keys, values, strict=True))
        case _:
            return _row(data, data_type.fields)


def _part(data: bytes, start: int, size: int) -> bytes:
    if start < 0 or size < 0 or start + size > len(data):
        raise ValueError("a part lies outside of its value")
    return data[start : start + size]


def _array(data: bytes, element: DataType) -> list[Any]:
    (count,) = struct.unpack_from("<i", data)
    width = struct.calcsize(_FIXED.get(element.root, "<q"))
    first = 4 + (count + _BITS_IN_GROUP - 1) // _BITS_IN_GROUP * 4
    _part(data, first, count * width)
    values: list[Any] = []
    for index in range(count):
        if data[4 + index // 8] >> index % 8 & 1:
            values.append(None)
        else:
            values.append(_slot(data, first + index * width, element))
    return values


def _slot(data: bytes, position: int, element: DataType) -> Any:  # noqa: ANN401 - a value of any type
    if element.root in _FIXED:
        return _counted(struct.unpack_from(_FIXED[element.root], data, position)[0], element)
    (slot,) = struct.unpack_from("<q", data, position)
    if element.root is DataTypeRoot.DECIMAL and element.precision <= _COMPACT_DECIMAL_DIGITS:
        return _decimal(slot, element)
    if element.root in _TIMESTAMPS:
        if element.precision <= _COMPACT_TIMESTAMP_DIGITS:
            return _timestamp(slot, 0, element)
        (milliseconds,) = struct.unpack("<q", _part(data, slot >> 32, 8))
        return _timestamp(milliseconds, slot & _LOW_32_BITS, element)
    if slot < 0:  # Up to seven bytes stand in the slot itself, below their number.
        return _of_bytes(_part(data, position, slot >> 56 & 0x7F), element)
    return _of_bytes(_part(data, slot >> 32, slot & _LOW_32_BITS), element)


def _of_bytes(data: bytes, data_type: DataType) -> Any:  # noqa: ANN401 - a value of any type
    if data_type.root is DataTypeRoot.DECIMAL:
        return _decimal(int.from_bytes(data, "big", signed=True), data_type)
    if data_type.fields:
        return read_nested(data, data_type)
    return data.decode() if data_type.root in _TEXTS else data


def _row(data: bytes, fields: Sequence[Field]) -> dict[str, Any]:
    reader = _RowReader(data, (len(fields) + 7) // 8)
    row: dict[str, Any] = {}
    for index, field in enumerate(fields):
        row[field.name] = None if data[index // 8] >> index % 8 & 1 else reader.read(field.data_type)
    if reader.position != len(data):
        raise ValueError("a row goes on behind its last field")
    return row


class _RowReader:
    """Reads the fields of a compacted row one behind the other."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def read(self, data_type: DataType) -> Any:  # noqa: ANN401 - a value of any type
        root = data_type.root
        if root in {DataTypeRoot.INT, DataTypeRoot.DATE, DataTypeRoot.TIME}:
            return _counted(self._varint(32), data_type)
        if root is DataTypeRoot.BIGINT:
            return self._varint(64)
        if root in _FIXED:
            size = struct.calcsize(_FIXED[root])
            return struct.unpack(_FIXED[root], self._take(size))[0]
        if root is DataTypeRoot.DECIMAL and data_type.precision <= _COMPACT_DECIMAL_DIGITS:
            return _decimal(self._varint(64), data_type)
        if root in _TIMESTAMPS:
            milliseconds = self._varint(64)
            nanoseconds = self._varint(32) if data_type.precision > _COMPACT_TIMESTAMP_DIGITS else 0
            return _timestamp(milliseconds, nanoseconds, data_type)
        return _of_bytes(self._take(self._varint(32)), data_type)

    def _take(self, size: int) -> bytes:
        part = _part(self._data, self.position, size)
        self.position += size
        return part

    def _varint(self, bits: int) -> int:
        value = 0
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> bits - 1 else value


def _decimal(unscaled: int, data_type: DataType) -> Decimal:
    # From its text: arithmetic would round to the context's digits.
    return Decimal(f"{unscaled}e-{data_type.scale}")


def _counted(value: Any, data_type: DataType) -> Any:  # noqa: ANN401 - a value of any type
    """A TIME's milliseconds in the unit of its Arrow type; any other value as it is."""
    return _timestamp(value, 0, data_type) if data_type.root is DataTypeRoot.TIME else value


def _timestamp(milliseconds: int, nanoseconds: int, data_type: DataType) -> int:
    """A moment in the unit of its Arrow type."""
    nanoseconds_in_unit: int = 10 ** (9 - UNIT_PRECISION[time_unit(data_type.precision)])
    return (milliseconds * 1_000_000 + nanoseconds) // nanoseconds_in_unit
