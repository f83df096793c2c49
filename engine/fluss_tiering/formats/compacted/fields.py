"""The values of columns as the fields of compacted rows and keys (Fluss's `CompactedRowWriter`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.buffers import NO_BYTES, NO_INT32S, NO_INT64S, byte_strings, decimal_bytes, numbers, validity
from fluss_tiering.formats.compacted.kernels import (
    BYTE,
    BYTES,
    FIXED16,
    FIXED32,
    FIXED64,
    VARINT32,
    VARINT64,
    add_sizes,
    write_field,
)
from fluss_tiering.formats.compiled import Int32s, Int64s, UInt8s
from fluss_tiering.formats.schema import UNIT_PRECISION
from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import DataType, DataTypeRoot

_COMPACT_DECIMAL_DIGITS: Final = 18
_COMPACT_TIMESTAMP_DIGITS: Final = 3
_MAX_BYTES: Final = 2**31 - 1
_KINDS: Final = {
    DataTypeRoot.BOOLEAN: BYTE,
    DataTypeRoot.TINYINT: BYTE,
    DataTypeRoot.SMALLINT: FIXED16,
    DataTypeRoot.INT: VARINT32,
    DataTypeRoot.BIGINT: VARINT64,
    DataTypeRoot.FLOAT: FIXED32,
    DataTypeRoot.DOUBLE: FIXED64,
    DataTypeRoot.CHAR: BYTES,
    DataTypeRoot.STRING: BYTES,
    DataTypeRoot.BINARY: BYTES,
    DataTypeRoot.BYTES: BYTES,
    DataTypeRoot.DATE: VARINT32,
    DataTypeRoot.TIME: VARINT32,
}


_ELEMENT_SLOTS: Final = {
    BYTE: (BYTE, 1),
    FIXED16: (FIXED16, 2),
    FIXED32: (FIXED32, 4),
    VARINT32: (FIXED32, 4),
}
_ANY_SLOT: Final = (FIXED64, 8)
COUNT_SIZE: Final = 4
"""The number of bytes of an array's count, and of a group of its null bits."""
MAX_IN_SLOT: Final = 7
"""The highest number of bytes that an element's own slot holds."""
_BITS_IN_GROUP: Final = 32


def element_slot(data_type: DataType) -> tuple[int, int]:
    """Return the kind and the size of an array's slots (`BinaryArray.calculateFixLengthPartSize`)."""
    return _ELEMENT_SLOTS.get(field_kinds(data_type)[0], _ANY_SLOT)


def array_heads(counts: Int64s) -> Int64s:
    """Return the size of the count and the null bits, which come before the slots, of arrays with these counts."""
    return COUNT_SIZE + (counts + _BITS_IN_GROUP - 1) // _BITS_IN_GROUP * COUNT_SIZE


def field_kinds(data_type: DataType) -> tuple[int, ...]:
    """Return the kinds of the fields of a value: one, or two for milliseconds and the nanoseconds in them.

    A decimal of up to 18 digits is its unscaled number, and a longer one the bytes of that number
    (`Decimal.isCompact`). A timestamp of up to 3 digits is its milliseconds only (`TimestampNtz.isCompact`).
    """
    match data_type.root:
        case DataTypeRoot.DECIMAL:
            return (VARINT64,) if data_type.precision <= _COMPACT_DECIMAL_DIGITS else (BYTES,)
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ:
            return (VARINT64,) if data_type.precision <= _COMPACT_TIMESTAMP_DIGITS else (VARINT64, VARINT32)
        case root:
            return (BYTES,) if root in NESTED else (_KINDS[root],)


class FieldArrays(NamedTuple):
    """One field of all rows, as the arrays that `add_sizes` and `write_field` take."""

    kind: int
    valid: UInt8s
    values: Int64s = NO_INT64S
    offsets: Int32s = NO_INT32S
    data: UInt8s = NO_BYTES


def fields_of(array: pa.Array, data_type: DataType) -> tuple[FieldArrays, ...]:
    """Return the fields of a column, in the order of `field_kinds`.

    Raises:
        FlussTieringError: INVALID_ROWS if the type is nested. Keys have no such types. For rows, see `nested_fields`.
    """
    if data_type.root in NESTED:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS, f"a key of type {data_type}: expected a type without parts, as keys have"
        )
    valid = validity(array)
    kinds = field_kinds(data_type)
    if kinds == (BYTES,):
        offsets, data = decimal_bytes(array) if data_type.root is DataTypeRoot.DECIMAL else byte_strings(array)
        return (FieldArrays(BYTES, valid, offsets=offsets, data=data),)
    values = numbers(array, data_type)
    if not pa.types.is_timestamp(array.type):
        return (FieldArrays(kinds[0], valid, values),)
    per_second = 10 ** UNIT_PRECISION[array.type.unit]
    if len(kinds) == 1:
        return (FieldArrays(VARINT64, valid, values * (1000 // per_second)),)
    milliseconds = values // (per_second // 1000)
    nanoseconds = (values - milliseconds * (per_second // 1000)) * (10**9 // per_second)
    return FieldArrays(VARINT64, valid, milliseconds), FieldArrays(VARINT32, valid, nanoseconds)


def write_rows(fields: Sequence[FieldArrays], count: int, header_size: int) -> tuple[UInt8s, Int32s]:
    """Write rows with these fields after a header, which is filled with zeros.

    Returns:
        The rows, one after the other, and the count + 1 positions between them.

    Raises:
        FlussTieringError: INVALID_ROWS if the rows together take more bytes than an Arrow array can hold.
    """
    sizes = np.full(count, header_size, np.int64)
    for field in fields:
        add_sizes(field.kind, field.valid, field.values, field.offsets, sizes)
    offsets = positions_between(sizes, "rows")
    cursor = offsets[:-1].astype(np.int64) + header_size
    out = np.zeros(offsets[-1], np.uint8)
    for field in fields:
        write_field(field.kind, field.valid, field.values, field.offsets, field.data, cursor, out)
    return out, offsets


def null_bytes(columns: int) -> int:
    """Return the number of bytes that the null bits of this many columns take."""
    return (columns + 7) // 8


def positions_between(sizes: Int64s, what: str) -> Int32s:
    """Return the n + 1 positions between byte strings of these sizes.

    Raises:
        FlussTieringError: INVALID_ROWS if they take more bytes than an Arrow array can hold. The message calls them
            `what`.
    """
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    if total > _MAX_BYTES:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"{ends.size} {what} take {total} bytes: expected at most {_MAX_BYTES}; write fewer rows at once",
        )
    offsets = np.zeros(ends.size + 1, np.int32)
    offsets[1:] = ends
    return offsets


def as_binary_array(data: UInt8s, offsets: Int32s) -> pa.BinaryArray:
    """Return the result of `write_rows` as an Arrow array, without a copy."""
    return pa.BinaryArray.from_buffers(pa.binary(), offsets.size - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
