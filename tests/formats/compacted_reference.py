"""A second implementation of Fluss's compacted layout, value by value, with which the compiled code is compared."""

import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from arrow_strategies import with_counts

from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.table import Column, DataType, DataTypeRoot

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NUMBERS = {
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


def varint(value: int, bits: int) -> bytes:
    value &= (1 << bits) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(value: Any, data_type: DataType, kind: pa.DataType) -> bytes:
    """Return the bytes of a value. Times and timestamps are counts in the unit of their Arrow type, dates are days."""
    match data_type.root:
        case DataTypeRoot.BOOLEAN:
            return bytes([value])
        case DataTypeRoot.TINYINT:
            return struct.pack("<b", value)
        case DataTypeRoot.SMALLINT:
            return struct.pack("<h", value)
        case DataTypeRoot.FLOAT:
            return struct.pack("<f", value)
        case DataTypeRoot.TIME:
            return varint(value * _NANOSECONDS[kind.unit] // 10**6, 32)
        case DataTypeRoot.INT | DataTypeRoot.DATE:
            return varint(value, 32)
        case DataTypeRoot.BIGINT:
            return varint(value, 64)
        case DataTypeRoot.DOUBLE:
            return struct.pack("<d", value)
        case DataTypeRoot.DECIMAL if data_type.precision <= 18:
            return varint(_unscaled(value), 64)
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ:
            milliseconds, rest = divmod(value * _NANOSECONDS[kind.unit], 10**6)
            return varint(milliseconds, 64) + (varint(rest, 32) if data_type.precision > 3 else b"")
        case _:
            content = _content(value, data_type, kind)
            return varint(len(content), 32) + content


def _content(value: Any, data_type: DataType, kind: pa.DataType) -> bytes:
    """Return the bytes of a value without its length."""
    parts = [part.data_type for part in data_type.fields]
    match data_type.root:
        case DataTypeRoot.CHAR | DataTypeRoot.STRING:
            return value.encode()
        case DataTypeRoot.DECIMAL:
            unscaled = _unscaled(value)
            size = 1
            while not -(1 << 8 * size - 1) <= unscaled < 1 << 8 * size - 1:
                size += 1
            return unscaled.to_bytes(size, "big", signed=True)
        case DataTypeRoot.ARRAY:
            return _array(value, parts[0], kind.value_type)
        case DataTypeRoot.MAP:
            keys = _array([key for key, _ in value], parts[0], kind.key_type)
            return struct.pack("<i", len(keys)) + keys + _array([item for _, item in value], parts[1], kind.item_type)
        case DataTypeRoot.ROW:
            return _row(list(value.values()), parts, [field.type for field in kind])
        case _:
            return value


def _array(values: Sequence[Any], element: DataType, kind: pa.DataType) -> bytes:
    width = struct.calcsize(_NUMBERS.get(element.root, "<q"))
    out = bytearray(struct.pack("<i", len(values)))
    out += sum(1 << index for index, item in enumerate(values) if item is None).to_bytes(
        (len(values) + 31) // 32 * 4, "little"
    )
    first = len(out)
    out += bytes(width * len(values))
    out += bytes(-len(out) % 8)
    for index, item in enumerate(values):
        if item is not None:
            content = b"" if element.root in _NUMBERS else _far(item, element, kind)
            slot, part = _slot(item, content, element, len(out), kind)
            out[first + width * index : first + width * (index + 1)] = slot
            out += part + bytes(-len(part) % 8)
    return bytes(out)


def _far(value: Any, element: DataType, kind: pa.DataType) -> bytes:
    """Return the bytes that an array has for a value after its slots, or in a slot if the value is short."""
    compact = {DataTypeRoot.DECIMAL: 18, DataTypeRoot.TIMESTAMP: 3, DataTypeRoot.TIMESTAMP_LTZ: 3}
    if element.root in compact and element.precision <= compact[element.root]:
        return b""
    if element.root in {DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ}:
        return struct.pack("<q", value * _NANOSECONDS[kind.unit] // 10**6)
    return _content(value, element, kind)


def _slot(value: Any, content: bytes, element: DataType, end: int, kind: pa.DataType) -> tuple[bytes, bytes]:
    """Return the slot of a value, and the bytes that come to the end of the array."""
    if element.root in _NUMBERS:
        if element.root is DataTypeRoot.TIME:
            value = value * _NANOSECONDS[kind.unit] // 10**6
        # Java has only one NaN.
        return struct.pack(_NUMBERS[element.root], math.nan if value != value else value), b""
    if element.root is DataTypeRoot.DECIMAL:
        if not content:
            return struct.pack("<q", _unscaled(value)), b""
        return struct.pack("<ii", len(content), end), content.ljust(16, b"\0")
    if element.root in {DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ}:
        nanoseconds = value * _NANOSECONDS[kind.unit]
        if not content:
            return struct.pack("<q", nanoseconds // 10**6), b""
        return struct.pack("<ii", nanoseconds % 10**6, end), content
    if len(content) <= 7 and element.root not in NESTED:
        return content.ljust(7, b"\0") + bytes([0x80 | len(content)]), b""
    return struct.pack("<ii", len(content), end), content


def _unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    return int(Decimal((sign, digits, 0)))


def _row(row: Sequence[Any], data_types: Sequence[DataType], kinds: Sequence[pa.DataType]) -> bytes:
    null_bits = sum(1 << index for index, item in enumerate(row) if item is None)
    fields = [field(*each) for each in zip(row, data_types, kinds, strict=True) if each[0] is not None]
    return null_bits.to_bytes((len(row) + 7) // 8, "little") + b"".join(fields)


def key(row: Sequence[Any], columns: Sequence[Column], schema: pa.Schema) -> bytes:
    return b"".join(
        field(value, column.data_type, schema.field(column.name).type)
        for value, column in zip(row, columns, strict=True)
    )


def value(row: Sequence[Any], columns: Sequence[Column], schema: pa.Schema, schema_id: int) -> bytes:
    return struct.pack("<h", schema_id) + _row(row, [column.data_type for column in columns], schema.types)


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return rows with dates as days, and times and timestamps as counts in their unit."""
    return list(zip(*(with_counts(array).to_pylist() for array in batch.columns), strict=True))
