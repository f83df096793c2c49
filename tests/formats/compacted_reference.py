"""Fluss's compacted layout written down once more, a value at a time, to hold the compiled code against."""

import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fluss_tiering.model.table import Column, DataType, DataTypeRoot

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def varint(value: int, bits: int) -> bytes:
    value &= (1 << bits) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(value: Any, data_type: DataType, unit: str | None) -> bytes:
    """A value's bytes; a time and a timestamp is a count in its Arrow unit, a date its days."""
    match data_type.root:
        case DataTypeRoot.BOOLEAN:
            return bytes([value])
        case DataTypeRoot.TINYINT:
            return struct.pack("<b", value)
        case DataTypeRoot.SMALLINT:
            return struct.pack("<h", value)
        case DataTypeRoot.FLOAT:
            return struct.pack("<f", value)
        case DataTypeRoot.BINARY | DataTypeRoot.BYTES:
            return varint(len(value), 32) + value
        case DataTypeRoot.TIME:
            return varint(value * _NANOSECONDS[unit or ""] // 10**6, 32)
        case DataTypeRoot.INT | DataTypeRoot.DATE:
            return varint(value, 32)
        case DataTypeRoot.BIGINT:
            return varint(value, 64)
        case DataTypeRoot.DOUBLE:
            return struct.pack("<d", value)
        case DataTypeRoot.CHAR | DataTypeRoot.STRING:
            text = value.encode()
            return varint(len(text), 32) + text
        case DataTypeRoot.DECIMAL:
            sign, digits, _ = value.as_tuple()
            unscaled = int(Decimal((sign, digits, 0)))
            if data_type.precision <= 18:
                return varint(unscaled, 64)
            size = 1
            while not -(1 << 8 * size - 1) <= unscaled < 1 << 8 * size - 1:
                size += 1
            return varint(size, 32) + unscaled.to_bytes(size, "big", signed=True)
        case _:
            nanoseconds = value * _NANOSECONDS[unit or ""]
            milliseconds, rest = divmod(nanoseconds, 10**6)
            return varint(milliseconds, 64) + (varint(rest, 32) if data_type.precision > 3 else b"")


def key(row: Sequence[Any], columns: Sequence[Column], schema: pa.Schema) -> bytes:
    return b"".join(
        field(value, column.data_type, _unit(schema.field(column.name)))
        for value, column in zip(row, columns, strict=True)
    )


def value(row: Sequence[Any], columns: Sequence[Column], schema: pa.Schema, schema_id: int) -> bytes:
    null_bits = sum(1 << index for index, item in enumerate(row) if item is None)
    present = [(item, column) for item, column in zip(row, columns, strict=True) if item is not None]
    header = struct.pack("<h", schema_id) + null_bits.to_bytes((len(columns) + 7) // 8, "little")
    return header + key([item for item, _ in present], [column for _, column in present], schema)


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Rows with dates as days, times and timestamps as counts in their unit."""
    plain = [
        array.cast(pa.int32())
        if pa.types.is_date32(array.type) or pa.types.is_time32(array.type)
        else array.cast(pa.int64())
        if pa.types.is_timestamp(array.type) or pa.types.is_time64(array.type)
        else array
        for array in batch.columns
    ]
    return list(zip(*(array.to_pylist() for array in plain), strict=True))


def _unit(arrow_field: pa.Field) -> str | None:
    kind = arrow_field.type
    return kind.unit if pa.types.is_timestamp(kind) or pa.types.is_time(kind) else None
