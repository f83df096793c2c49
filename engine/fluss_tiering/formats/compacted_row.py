"""Rows of a primary-key table as the values that they are stored as, and back.

A value is the schema's id as a little-endian i16, then Fluss's compacted row (`ValueEncoder`, `CompactedRowWriter`): a
bit for each column, set where it is null, in whole bytes from the lowest bit on, then the fields of the other columns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.buffers import NO_BYTES, NO_INT32S, NO_INT64S, byte_strings, validity
from fluss_tiering.formats.compacted_fields import Field, as_binary_array, field_kinds, fields_of, write_rows
from fluss_tiering.formats.compacted_kernels import (
    ALL_GOOD,
    BYTES,
    FIXED64,
    VARINT64,
    Int32s,
    Int64s,
    UInt8s,
    decimals_from_bytes,
    gather_bytes,
    read_field,
)
from fluss_tiering.formats.nested_values import read_nested
from fluss_tiering.formats.schema import UNIT_PRECISION, arrow_schema, arrow_type
from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataTypeRoot

_SCHEMA_ID_SIZE: Final = 2
_NANOSECONDS_IN_MILLISECOND: Final = 1_000_000
_MILLISECONDS_IN_DAY: Final = 86_400_000


def encode_values(records: pa.RecordBatch, columns: Sequence[Column], schema_id: int) -> pa.BinaryArray:
    """The value of each row.

    Args:
        records: in the Arrow schema of the table.
        columns: of the table.
        schema_id: of the table's schema.

    Raises:
        FlussTieringError: INVALID_ROWS when a NOT NULL column has a null, or all values take more bytes than an array
            holds.
    """
    fields: list[Field] = []
    for column, array in zip(columns, records.columns, strict=True):
        if array.null_count and not column.data_type.nullable:
            raise FlussTieringError(
                ErrorCode.INVALID_ROWS, f"column {column.name!r} is null in a row: expected {column.data_type}"
            )
        fields.extend(fields_of(array, column.data_type))
    rows, offsets = write_rows(fields, records.num_rows, _SCHEMA_ID_SIZE + _null_bytes(columns))
    starts = offsets[:-1]
    for position, byte in enumerate(schema_id.to_bytes(_SCHEMA_ID_SIZE, "little")):
        rows[starts + position] = byte
    for index, array in enumerate(records.columns):
        if array.null_count:
            nulls = np.flatnonzero(validity(array) == 0)
            rows[starts[nulls] + _SCHEMA_ID_SIZE + index // 8] |= 1 << index % 8
    return as_binary_array(rows, offsets)


def decode_values(values: pa.BinaryArray, columns: Sequence[Column], schema_id: int) -> pa.RecordBatch:
    """The rows that values stand for, in the Arrow schema of the table.

    Args:
        values: may be a slice.
        columns: of the table.
        schema_id: that every value must have.

    Raises:
        FlussTieringError: CORRUPT_DATA naming the first value, counted from 0, that is no row of such a table.
    """
    rows = _Rows(values, columns, schema_id)
    arrays = [_array(rows, column, valid) for column, valid in zip(columns, rows.validities(columns), strict=True)]
    rows.check_ends()
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _null_bytes(columns: Sequence[Column]) -> int:
    return (len(columns) + 7) // 8


class _Rows:
    """Values that are read field by field; no byte outside of a value is ever looked at."""

    def __init__(self, values: pa.BinaryArray, columns: Sequence[Column], schema_id: int) -> None:
        values.validate(full=True)
        offsets, self.data = byte_strings(values)
        self.count = len(values)
        starts, self._ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        header_size = _SCHEMA_ID_SIZE + _null_bytes(columns)
        self.refuse_any(self._ends - starts < header_size, "is shorter than its null bits")
        ids = self.data[starts] | self.data[starts + 1].astype(np.uint16) << 8
        self.refuse_any(ids != schema_id, f"has another schema id than {schema_id}")
        self._null_bits = starts + _SCHEMA_ID_SIZE
        self._cursor = starts + header_size

    def validities(self, columns: Sequence[Column]) -> Iterator[UInt8s]:
        """For each column 1 where it has a value and 0 where it is null; empty when it nowhere is."""
        for index, column in enumerate(columns):
            if index % 8 == 0:
                bits = self.data[self._null_bits + index // 8]
                seen = int(np.bitwise_or.reduce(bits, initial=0))
            if not seen >> index % 8 & 1:
                yield NO_BYTES
                continue
            nulls: UInt8s = bits >> np.uint8(index % 8) & np.uint8(1)
            if not column.data_type.nullable:
                self.refuse_any(nulls != 0, f"has a null for column {column.name!r}, which is {column.data_type}")
            yield nulls ^ np.uint8(1)

    def read(self, kind: int, column: Column, valid: UInt8s) -> tuple[Int32s, Int64s]:
        """The next field of every row, as `read_field` returns it; 0 where it is null."""
        out32 = NO_INT32S if kind in {VARINT64, FIXED64} else np.zeros(self.count, np.int32)
        out64 = np.zeros(self.count, np.int64) if kind in {VARINT64, FIXED64, BYTES} else NO_INT64S
        bad = read_field(kind, valid, self.data, self._ends, self._cursor, out32, out64)
        if bad != ALL_GOOD:
            self.refuse(bad, f"does not hold a {column.data_type.root} where column {column.name!r} is")
        return out32, out64

    def check_ends(self) -> None:
        self.refuse_any(self._cursor != self._ends, "goes on behind its last column")

    def refuse_any(self, bad: npt.NDArray[np.bool_], what: str) -> None:
        if bad.any():
            self.refuse(int(bad.argmax()), what)

    def refuse(self, row: int, what: str) -> NoReturn:
        raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"the stored value {row} of {self.count} {what}")


def _array(rows: _Rows, column: Column, valid: UInt8s) -> pa.Array:
    kinds = field_kinds(column.data_type)
    out32, out64 = rows.read(kinds[0], column, valid)
    if column.data_type.root in NESTED:
        return _nested_array(rows, column, valid, out32, out64)
    buffers: tuple[npt.NDArray[Any], ...]
    kind = arrow_type(column.data_type)
    stored_as = kind
    match column.data_type.root:
        case DataTypeRoot.BOOLEAN:
            buffers = (np.packbits(out32 != 0, bitorder="little"),)
        case DataTypeRoot.TINYINT:
            buffers = (out32.astype(np.int8),)
        case DataTypeRoot.SMALLINT:
            buffers = (out32.astype(np.int16),)
        case DataTypeRoot.INT | DataTypeRoot.FLOAT | DataTypeRoot.DATE:
            buffers = (out32,)
        case DataTypeRoot.TIME:
            buffers = (_time_counts(rows, column, out32),)
        case DataTypeRoot.STRING | DataTypeRoot.CHAR | DataTypeRoot.BYTES:
            buffers = _string_buffers(rows, out32, out64)
        case DataTypeRoot.BINARY:
            _check_lengths(rows, column, valid, out32)
            stored_as = pa.binary()
            buffers = _string_buffers(rows, out32, out64)
        case DataTypeRoot.DECIMAL:
            buffers = (_decimal_words(rows, column, valid, out32, out64),)
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ:
            nanoseconds = rows.read(kinds[1], column, valid)[0] if len(kinds) == 2 else None
            buffers = (_timestamp_counts(rows, column, out64, nanoseconds),)
        case _:
            buffers = (out64,)
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if valid.size else None
    array = pa.Array.from_buffers(stored_as, rows.count, [bitmap, *map(pa.py_buffer, buffers)])
    if column.data_type.root in {DataTypeRoot.STRING, DataTypeRoot.CHAR, DataTypeRoot.DECIMAL}:
        _check_content(array, column)
    return array if stored_as is kind else array.cast(kind)


def _nested_array(rows: _Rows, column: Column, valid: UInt8s, lengths: Int32s, positions: Int64s) -> pa.Array:
    """One value after the other, in Python: arrays of arrays have no columns that a loop could run over."""
    values: list[Any] = []
    for row, (start, length) in enumerate(zip(positions.tolist(), lengths.tolist(), strict=True)):
        if valid.size and not valid[row]:
            values.append(None)
            continue
        try:
            values.append(read_nested(rows.data[start : start + length].tobytes(), column.data_type))
        except (ValueError, IndexError, struct.error) as error:
            rows.refuse(row, f"does not hold a {column.data_type.root} where column {column.name!r} is ({error})")
    try:
        array = pa.array(values, arrow_type(column.data_type))
        array.validate(full=True)
    except (pa.ArrowException, OverflowError) as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA, f"a stored value has no {column.data_type} where column {column.name!r} is: {error}"
        ) from error
    return array


def _string_buffers(rows: _Rows, lengths: Int32s, positions: Int64s) -> tuple[Int32s, UInt8s]:
    offsets = np.zeros(rows.count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    text = np.empty(offsets[-1], np.uint8)
    gather_bytes(rows.data, positions, offsets, text)
    return offsets, text


def _decimal_words(rows: _Rows, column: Column, valid: UInt8s, lengths: Int32s, out64: Int64s) -> Int64s:
    """The halves of decimals that were read as numbers, or as bytes where `lengths` are given."""
    words = np.empty(2 * rows.count, np.int64)
    if lengths is NO_INT32S:
        words[::2] = out64
        words[1::2] = out64 >> 63
        return words
    bad = decimals_from_bytes(rows.data, valid, out64, lengths, words)
    if bad != ALL_GOOD:
        rows.refuse(bad, f"has {lengths[bad]} bytes where the decimal of column {column.name!r} is, expected 1 to 16")
    return words


def _time_counts(rows: _Rows, column: Column, milliseconds: Int32s) -> npt.NDArray[Any]:
    """Counts in the unit of the column's Arrow type."""
    rows.refuse_any(
        (milliseconds < 0) | (milliseconds >= _MILLISECONDS_IN_DAY),
        f"has a time outside of a day where column {column.name!r} is",
    )
    kind = arrow_type(column.data_type)
    digits = UNIT_PRECISION[kind.unit]
    if kind.bit_width == 32:
        counts: npt.NDArray[Any] = milliseconds if digits else milliseconds // 1000
    else:
        counts = milliseconds.astype(np.int64) * 10 ** (digits - 3)
    return counts


def _check_lengths(rows: _Rows, column: Column, valid: UInt8s, lengths: Int32s) -> None:
    width = column.data_type.length
    wrong = lengths != width
    if valid.size:
        wrong &= valid != 0
    rows.refuse_any(wrong, f"has other than {width} bytes where column {column.name!r} is")


def _timestamp_counts(rows: _Rows, column: Column, milliseconds: Int64s, nanoseconds: Int32s | None) -> Int64s:
    """Counts in the unit of the column's Arrow type."""
    per_second = 10 ** UNIT_PRECISION[arrow_type(column.data_type).unit]
    if nanoseconds is None:
        seconds_or_milliseconds: Int64s = milliseconds // (1000 // per_second)
        return seconds_or_milliseconds
    rows.refuse_any(
        (nanoseconds < 0) | (nanoseconds >= _NANOSECONDS_IN_MILLISECOND),
        f"has more nanoseconds than a millisecond where column {column.name!r} is",
    )
    per_millisecond = per_second // 1000
    counts: Int64s = milliseconds * per_millisecond + nanoseconds // (_NANOSECONDS_IN_MILLISECOND // per_millisecond)
    # Where the product went beyond 64 bits it wrapped around, and does not lead back.
    rows.refuse_any(
        counts // per_millisecond != milliseconds,
        f"has a timestamp where column {column.name!r} is that {arrow_type(column.data_type)} cannot hold",
    )
    return counts


def _check_content(array: pa.Array, column: Column) -> None:
    """Text must be UTF-8, and a decimal must have no more digits than its precision."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA, f"a stored value has no {column.data_type} where column {column.name!r} is: {error}"
        ) from error
