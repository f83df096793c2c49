"""Loops that read and write compacted rows and keys, one field of all rows at a time.

A field of a compacted row has one of seven kinds (Fluss's `CompactedRowWriter`): one, two, four or eight bytes, a
LEB128 number for 32 bits or for 64 bits in two's complement, or bytes after their length. Nested values also have bytes
without a length. These are written here but not read. For each row a cursor says where the next field starts. The
kernels trust their callers to pass arrays of the right lengths. They never trust the data.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fluss_tiering.formats.compiled import (
    ALL_GOOD,
    INT32_IN,
    INT32_OUT,
    INT64,
    INT64_IN,
    INT64_OUT,
    UINT8_IN,
    UINT8_OUT,
    Int32s,
    Int64s,
    UInt8s,
    compiled,
    helper,
)

BYTE: Final = 0
VARINT32: Final = 1
VARINT64: Final = 2
FIXED64: Final = 3
BYTES: Final = 4
FIXED16: Final = 5
FIXED32: Final = 6
RAW: Final = 7

_LOW_32_BITS: Final = np.uint64(0xFFFFFFFF)
_SEVEN_BITS: Final = np.uint64(0x7F)
_MORE: Final = np.uint64(0x80)
_SEVEN: Final = np.uint64(7)
_LAST_SHIFT: Final = np.uint64(63)
_LAST_BYTE: Final = np.uint64(1)
"""The tenth byte of a number carries only its last bit."""
_NOWHERE: Final = -1


@helper
def _varint_size(value: np.uint64) -> int:
    size = 1
    while value >= _MORE:
        value >>= _SEVEN
        size += 1
    return size


@helper
def _write_varint(out: UInt8s, position: int, value: np.uint64) -> int:
    while value >= _MORE:
        out[position] = (value & _SEVEN_BITS) | _MORE
        value >>= _SEVEN
        position += 1
    out[position] = value
    return position + 1


@helper
def _read_varint(data: UInt8s, position: int, end: int) -> tuple[np.uint64, int]:
    """Return the number at a position and the position after it.

    The position after it is `_NOWHERE` if the number has no end or more than 64 bits.
    """
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = np.uint64(data[position])
        position += 1
        if shift == _LAST_SHIFT and byte > _LAST_BYTE:
            break
        value |= (byte & _SEVEN_BITS) << shift
        if byte < _MORE:
            return value, position
        shift += _SEVEN
    return value, _NOWHERE


@helper
def _fixed_size(kind: int) -> int:
    """Return the size of a field of this kind, or 0 if the size depends on the value."""
    if kind == FIXED64:
        return 8
    if kind == FIXED32:
        return 4
    if kind == FIXED16:
        return 2
    return 1 if kind == BYTE else 0


@helper
def _read_fixed(data: UInt8s, position: int, size: int) -> np.uint64:
    value = np.uint64(0)
    for i in range(size):
        value |= np.uint64(data[position + i]) << np.uint64(8 * i)
    return value


@compiled(INT64, UINT8_IN, INT64_IN, INT32_IN, INT64_OUT, result=INT64)
def add_sizes(kind: int, valid: UInt8s, values: Int64s, offsets: Int32s, sizes: Int64s) -> int:
    """Add the size of a field to the size of each row. A null has the size 0.

    Args:
        valid: 0 for each null and 1 for each value, or an empty array if there is no null.
        values: The values of the field, unless its kind is BYTES or RAW.
        offsets: The n + 1 positions between the byte strings of a field of the kind BYTES or RAW.
        sizes: The size of each row. This function adds to it.
    """
    for i in range(sizes.size):
        if valid.size != 0 and valid[i] == 0:
            continue
        if kind == BYTES:
            length = np.int64(offsets[i + 1] - offsets[i])
            sizes[i] += _varint_size(np.uint64(length)) + length
        elif kind == RAW:
            sizes[i] += np.int64(offsets[i + 1] - offsets[i])
        elif kind == VARINT32:
            sizes[i] += _varint_size(np.uint64(values[i]) & _LOW_32_BITS)
        elif kind == VARINT64:
            sizes[i] += _varint_size(np.uint64(values[i]))
        else:
            sizes[i] += _fixed_size(kind)
    return ALL_GOOD


@compiled(INT64, UINT8_IN, INT64_IN, INT32_IN, UINT8_IN, INT64_OUT, UINT8_OUT, result=INT64)
def write_field(  # noqa: PLR0917 - compiled functions are called by position
    kind: int, valid: UInt8s, values: Int64s, offsets: Int32s, data: UInt8s, cursor: Int64s, out: UInt8s
) -> int:
    """Write a field of each row at the cursor of the row, and move the cursor after the field.

    Args:
        valid: 0 for each null and 1 for each value, or an empty array if there is no null.
        values: The values of the field, unless its kind is BYTES or RAW.
        offsets: The n + 1 positions in `data` between the byte strings of a field of the kind BYTES or RAW.
        data: The bytes to which `offsets` point.
        cursor: The position in `out` at which the next field of each row starts.
        out: The bytes that this function writes, with room for the sizes that `add_sizes` computed.
    """
    has_length = kind == BYTES
    for i in range(cursor.size):
        if valid.size != 0 and valid[i] == 0:
            continue
        position = cursor[i]
        if has_length or kind == RAW:
            start = offsets[i]
            length = offsets[i + 1] - start
            if has_length:
                position = _write_varint(out, position, np.uint64(length))
            for j in range(length):
                out[position + j] = data[start + j]
            position += length
        elif kind == VARINT32:
            position = _write_varint(out, position, np.uint64(values[i]) & _LOW_32_BITS)
        elif kind == VARINT64:
            position = _write_varint(out, position, np.uint64(values[i]))
        else:
            bits = np.uint64(values[i])
            size = _fixed_size(kind)
            for j in range(size):
                out[position + j] = (bits >> np.uint64(8 * j)) & np.uint64(0xFF)
            position += size
        cursor[i] = position
    return ALL_GOOD


@compiled(INT64, UINT8_IN, UINT8_IN, INT64_IN, INT64_OUT, INT32_OUT, INT64_OUT, result=INT64)
def read_field(  # noqa: PLR0917 - compiled functions are called by position
    kind: int, valid: UInt8s, data: UInt8s, ends: Int64s, cursor: Int64s, out32: Int32s, out64: Int64s
) -> int:
    """Read a field of each row at the cursor of the row, and move the cursor after the field.

    Args:
        valid: 0 for each null and 1 for each value, or an empty array if there is no null. Nothing is read for a null.
        data: The bytes to which `ends` and `cursor` point.
        ends: The position at which each row ends.
        cursor: The position at which the next field of each row starts.
        out32: The values of the kinds BYTE, FIXED16, FIXED32 and VARINT32, and the lengths of BYTES. This function
            writes them. The array has the length n for these kinds.
        out64: The values of the kinds VARINT64 and FIXED64, and the positions in `data` of BYTES. This function writes
            them. The array has the length n for these kinds.

    Returns:
        The first row whose bytes are not such a field, or ALL_GOOD.
    """
    for i in range(cursor.size):
        if valid.size != 0 and valid[i] == 0:
            continue
        position = cursor[i]
        size = _fixed_size(kind)
        if size > ends[i] - position:
            return i
        if kind == FIXED64:
            out64[i] = np.int64(_read_fixed(data, position, 8))
            position += 8
        elif size != 0:
            out32[i] = np.int32(_read_fixed(data, position, size))
            position += size
        else:
            value, position = _read_varint(data, position, ends[i])
            if position == _NOWHERE or (kind != VARINT64 and value > _LOW_32_BITS):
                return i
            if kind == VARINT64:
                out64[i] = np.int64(value)
            else:
                out32[i] = np.int32(value)
            if kind == BYTES:
                if out32[i] < 0 or out32[i] > ends[i] - position:
                    return i
                out64[i] = position
                position += out32[i]
        cursor[i] = position
    return ALL_GOOD


@compiled(UINT8_IN, INT64_IN, INT32_IN, UINT8_OUT, result=INT64)
def gather_bytes(data: UInt8s, positions: Int64s, offsets: Int32s, out: UInt8s) -> int:
    """Copy the byte strings that `read_field` found, one after the other.

    Args:
        data: The bytes to read.
        positions: The position of each string in `data`.
        offsets: The n + 1 positions between the strings in `out`.
        out: The bytes that this function writes, with the length `offsets[n]`.
    """
    for i in range(positions.size):
        start = positions[i]
        target = offsets[i]
        for j in range(offsets[i + 1] - target):
            out[target + j] = data[start + j]
    return ALL_GOOD
