"""Arrow columns as the fields of compacted rows and keys, and rows with null bits (Fluss's `CompactedRowWriter`).

`compacted.reading` describes the layout of nested values. Each byte is as Fluss writes it (`BinaryArrayWriter`,
`BinaryMap`, `CompactedRowWriter`). Values are written level by level, all elements of all rows at once. The slot of a
null element is filled with zeros, as in a new array of Fluss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.buffers import NO_BYTES, NO_INT32S, NO_INT64S, byte_strings, decimal_bytes, numbers, validity
from fluss_tiering.formats.compacted.kernels import (
    BYTE,
    BYTES,
    FIXED16,
    FIXED32,
    FIXED64,
    RAW,
    VARINT32,
    VARINT64,
    add_sizes,
    write_field,
)
from fluss_tiering.formats.compiled import Int32s, Int64s, UInt8s
from fluss_tiering.formats.nested_arrays import list_parts, map_parts
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
_WORD: Final = 8
_IN_SLOT: Final = 0x80
_DECIMAL_PART_SIZE: Final = 16
_FLOAT_EXPONENT: Final = 0x7F800000
_DOUBLE_EXPONENT: Final = 0x7FF0000000000000
_FLOAT_NAN: Final = 0x7FC00000
_DOUBLE_NAN: Final = 0x7FF8000000000000


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


def write_nullable_rows(
    arrays: Sequence[pa.Array], data_types: Sequence[DataType], count: int, prefix: bytes = b""
) -> tuple[UInt8s, Int32s]:
    """Write compacted rows, each with a prefix, null bits, and the fields of the columns that are not null.

    Args:
        arrays: The columns, each of the length `count`, in their Arrow types. Nulls are not checked.
        data_types: The type of each column.
        count: The number of rows.
        prefix: The bytes with which each row begins.

    Returns:
        The rows, one after the other, and the count + 1 positions between them.

    Raises:
        FlussTieringError: INVALID_ROWS if the rows together take more bytes than an Arrow array can hold.
    """
    fields: list[FieldArrays] = []
    for array, data_type in zip(arrays, data_types, strict=True):
        fields.extend(_fields(array, data_type))
    rows, offsets = write_rows(fields, count, len(prefix) + null_bytes(len(arrays)))
    starts = offsets[:-1]
    for position, byte in enumerate(prefix):
        rows[starts + position] = byte
    for index, array in enumerate(arrays):
        if array.null_count:
            nulls = np.flatnonzero(validity(array) == 0)
            rows[starts[nulls] + len(prefix) + index // 8] |= 1 << index % 8
    return rows, offsets


def _fields(array: pa.Array, data_type: DataType) -> tuple[FieldArrays, ...]:
    if data_type.root not in NESTED:
        return fields_of(array, data_type)
    offsets, data = _nested(array, data_type)
    return (FieldArrays(BYTES, validity(array), offsets=offsets, data=data),)


def _nested(array: pa.Array, data_type: DataType) -> tuple[Int32s, UInt8s]:
    """Return nested values as n + 1 positions and the bytes between them. The bytes of a null mean nothing."""
    parts = [field.data_type for field in data_type.fields]
    if data_type.root is DataTypeRoot.ROW:
        rows, offsets = write_nullable_rows([array.field(index) for index in range(len(parts))], parts, len(array))
        return offsets, rows
    if data_type.root is DataTypeRoot.ARRAY:
        return _array(*list_parts(array), parts[0])
    counts, *elements = map_parts(array)
    keys, values = (_array(counts, each, part) for each, part in zip(elements, parts, strict=True))
    fields = [
        FieldArrays(FIXED32, NO_BYTES, np.diff(keys[0]).astype(np.int64)),
        FieldArrays(RAW, NO_BYTES, offsets=keys[0], data=keys[1]),
        FieldArrays(RAW, NO_BYTES, offsets=values[0], data=values[1]),
    ]
    maps, offsets = write_rows(fields, len(array), header_size=0)
    return offsets, maps


def _array(counts: Int64s, elements: pa.Array, element: DataType) -> tuple[Int32s, UInt8s]:
    """Return arrays as `_nested` does.

    Args:
        counts: The number of elements of each array.
        elements: The elements of all arrays, one after the other.
    """
    first, *rest = _fields(elements, element)
    if rest:
        arrays = _Arrays(counts, elements, _WORD, np.where(_present(first), _WORD, 0))
        arrays.write_far(first._replace(kind=FIXED64), _present(first), rest[0].values)
    elif first.kind == BYTES:
        lengths = np.where(_present(first), np.diff(first.offsets).astype(np.int64), 0)
        near = _present(first) & (lengths <= MAX_IN_SLOT) & (element.root not in NESTED | {DataTypeRoot.DECIMAL})
        far = _present(first) & ~near
        size = _DECIMAL_PART_SIZE if element.root is DataTypeRoot.DECIMAL else _whole_words(lengths)
        arrays = _Arrays(counts, elements, _WORD, np.where(far, size, 0))
        arrays.write_near(first._replace(kind=RAW), near, lengths)
        arrays.write_far(first._replace(kind=RAW), far, lengths)
    else:
        kind, width = element_slot(element)
        arrays = _Arrays(counts, elements, width, np.zeros(len(elements), np.int64))
        arrays.write_slots(FieldArrays(kind, first.valid, _with_one_nan(first.values, element)))
    return arrays.offsets, arrays.data


class _Arrays:
    """Arrays with counts and null bits, whose elements are still to be written.

    Slots of one width come first. Parts for elements that do not fit into a slot come after them.

    Attributes:
        offsets: The n + 1 positions between the arrays.
        data: The bytes of the arrays.
    """

    def __init__(self, counts: Int64s, elements: pa.Array, width: int, part_sizes: Int64s) -> None:
        heads = array_heads(counts)
        fixed = _whole_words(heads + counts * width)
        ends = np.cumsum(counts)
        firsts = ends - counts
        parts = np.zeros(len(elements) + 1, np.int64)
        np.cumsum(part_sizes, out=parts[1:])
        self.offsets = positions_between(fixed + parts[ends] - parts[firsts], "arrays")
        self.data = np.zeros(self.offsets[-1], np.uint8)
        starts = self.offsets[:-1].astype(np.int64)
        _write(FieldArrays(FIXED32, NO_BYTES, counts), starts.copy(), self.data)
        self._starts = np.repeat(starts, counts)
        within = np.arange(len(elements)) - np.repeat(firsts, counts)
        self._slots = self._starts + np.repeat(heads, counts) + within * width
        self._parts = parts[:-1] + np.repeat(fixed - parts[firsts], counts)
        if elements.null_count:
            nulls = np.flatnonzero(validity(elements) == 0)
            bits = np.left_shift(1, within[nulls] % 8).astype(np.uint8)
            # Each bit is set only once, so that their sum has all of them.
            np.add.at(self.data, self._starts[nulls] + COUNT_SIZE + within[nulls] // 8, bits)

    def write_slots(self, field: FieldArrays) -> None:
        _write(field, self._slots.copy(), self.data)

    def write_near(self, field: FieldArrays, which: npt.NDArray[np.bool_], lengths: Int64s) -> None:
        """Write elements of up to seven bytes into the slots, each with its length in the last byte."""
        self.write_slots(field._replace(valid=which.view(np.uint8)))
        self.data[self._slots[which] + _WORD - 1] = _IN_SLOT | lengths[which]

    def write_far(self, field: FieldArrays, which: npt.NDArray[np.bool_], low_words: Int64s) -> None:
        """Write elements into their parts, and write the place of each part and a 32-bit number into its slot."""
        valid = which.view(np.uint8)
        self.write_slots(FieldArrays(FIXED64, valid, self._parts << 32 | low_words))
        _write(field._replace(valid=valid), self._starts + self._parts, self.data)


def _write(field: FieldArrays, cursor: Int64s, out: UInt8s) -> None:
    write_field(field.kind, field.valid, field.values, field.offsets, field.data, cursor, out)


def _present(field: FieldArrays) -> npt.NDArray[np.bool_]:
    """Tell for each row whether a field has a value. The kind of the field is not BYTE."""
    if field.valid.size:
        return field.valid.view(np.bool_)
    count = field.values.size if field.offsets is NO_INT32S else field.offsets.size - 1
    return np.ones(count, np.bool_)


def _whole_words(sizes: Int64s) -> Int64s:
    return (sizes + _WORD - 1) // _WORD * _WORD


def _with_one_nan(bits: Int64s, element: DataType) -> Int64s:
    """Replace each NaN by Java's NaN in the bits of numbers. Fluss does so in arrays, but not in rows."""
    if element.root is DataTypeRoot.FLOAT:
        return np.where((bits & ~(-1 << 31)) > _FLOAT_EXPONENT, _FLOAT_NAN, bits)
    if element.root is DataTypeRoot.DOUBLE:
        return np.where((bits & ~(-1 << 63)) > _DOUBLE_EXPONENT, _DOUBLE_NAN, bits)
    return bits
