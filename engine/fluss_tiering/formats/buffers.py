"""Arrow arrays as the plain numpy arrays that compiled loops take. Arrays of the same width are not copied."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
)
from fluss_tiering.formats.schema import UNIT_PRECISION
from fluss_tiering.model.data_type import DataType, DataTypeRoot

_MILLISECOND_DIGITS: Final = 3
NO_BYTES: Final[UInt8s] = np.empty(0, np.uint8)
NO_INT32S: Final[Int32s] = np.empty(0, np.int32)
NO_INT64S: Final[Int64s] = np.empty(0, np.int64)
_SIGN: Final = np.uint64(0x80)


def validity(array: pa.Array) -> UInt8s:
    """Return 1 for each value of the array and 0 for each null, or an empty array if there is no null."""
    if array.null_count == 0:
        return NO_BYTES
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid.view(np.uint8)


def numbers(array: pa.Array, data_type: DataType) -> Int64s:
    """Return each value as one number of 64 bits, for types that `byte_strings` does not take.

    The number of a BOOLEAN is 0 or 1, that of a FLOAT or a DOUBLE its bits, that of a DECIMAL the low half of its
    unscaled value, that of a DATE its days, that of a TIME its milliseconds, and that of a timestamp its count in the
    unit of the array. The number of a null means nothing.
    """
    match data_type.root:
        case DataTypeRoot.BOOLEAN:
            return _items(array.cast(pa.int64()), np.int64)
        case DataTypeRoot.TINYINT:
            return _items(array, np.int8).astype(np.int64)
        case DataTypeRoot.SMALLINT:
            return _items(array, np.int16).astype(np.int64)
        case DataTypeRoot.INT | DataTypeRoot.FLOAT | DataTypeRoot.DATE:
            return _items(array, np.int32).astype(np.int64)
        case DataTypeRoot.TIME:
            return _milliseconds(array)
        case DataTypeRoot.DECIMAL:
            return np.ascontiguousarray(_words(array)[::2])
        case _:
            return _items(array, np.int64)


def byte_strings(array: pa.Array) -> tuple[Int32s, UInt8s]:
    """Return strings or binaries as n + 1 positions and the bytes to which these point."""
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    _, positions, data = array.buffers()
    if len(array) == 0 or positions is None:
        return np.zeros(1, np.int32), NO_BYTES
    offsets = np.frombuffer(positions, np.int32, len(array) + 1, 4 * array.offset)
    return offsets, NO_BYTES if data is None else np.frombuffer(data, np.uint8)


def decimal_bytes(array: pa.Array) -> tuple[Int32s, UInt8s]:
    """Return the unscaled values of decimals as byte strings, as `byte_strings` does.

    A value is in two's complement and big-endian order, and takes as few bytes as possible.
    """
    offsets = np.empty(len(array) + 1, np.int32)
    data = np.empty(16 * len(array), np.uint8)
    decimals_to_bytes(_words(array), offsets, data)
    return offsets, data


def _milliseconds(array: pa.Array) -> Int64s:
    count = _items(array, np.int32 if array.type.bit_width == 32 else np.int64).astype(np.int64)
    digits = UNIT_PRECISION[array.type.unit]
    return count * 1000 if digits == 0 else count // 10 ** (digits - _MILLISECOND_DIGITS)


def _words(array: pa.Array) -> Int64s:
    """Return the low and the high half of each unscaled value."""
    return _items(array, np.int64, per_value=2)


def _items(array: pa.Array, item: type[np.generic], *, per_value: int = 1) -> npt.NDArray[Any]:
    values = array.buffers()[1]
    if len(array) == 0 or values is None:
        return np.empty(0, item)
    start = array.offset * per_value * np.dtype(item).itemsize
    return np.frombuffer(values, item, len(array) * per_value, start)


@compiled(INT64_IN, INT32_OUT, UINT8_OUT, result=INT64)
def decimals_to_bytes(words: Int64s, offsets: Int32s, out: UInt8s) -> int:
    """Write unscaled decimals as Java's `BigInteger.toByteArray` does.

    A value is in two's complement and big-endian order, and takes as few bytes as possible.

    Args:
        words: The low and the high half of each value.
        offsets: The n + 1 positions between the byte strings. This function writes them.
        out: The bytes that this function writes, with room for 16 bytes per value. Only the first `offsets[n]` of them
            are written.
    """
    position = 0
    offsets[0] = 0
    for i in range(offsets.size - 1):
        low = np.uint64(words[2 * i])
        high = np.uint64(words[2 * i + 1])
        fill = np.uint64(0xFF) if words[2 * i + 1] < 0 else np.uint64(0)
        sign = fill & _SIGN
        leading = True
        for j in range(16):
            word = high if j < 8 else low
            byte = (word >> np.uint64(8 * (7 - (j & 7)))) & np.uint64(0xFF)
            if leading and j < 15 and byte == fill:
                follow = high if j < 7 else low
                following = (follow >> np.uint64(8 * (7 - ((j + 1) & 7)))) & _SIGN
                if following == sign:
                    continue
            leading = False
            out[position] = byte
            position += 1
        offsets[i + 1] = position
    return ALL_GOOD


@compiled(UINT8_IN, UINT8_IN, INT64_IN, INT32_IN, INT64_OUT, result=INT64)
def decimals_from_bytes(data: UInt8s, valid: UInt8s, positions: Int64s, lengths: Int32s, words: Int64s) -> int:
    """Read what `decimals_to_bytes` writes, at the places where `read_field` found the byte strings.

    Args:
        data: The bytes to read.
        valid: 0 for each null and 1 for each value, or an empty array if there is no null. A null becomes the number 0.
        positions: The position of each byte string in `data`.
        lengths: The length of each byte string.
        words: The low and the high half of each value. This function writes them.

    Returns:
        The first row whose byte string is empty or longer than 16 bytes, or ALL_GOOD.
    """
    for i in range(positions.size):
        low = np.uint64(0)
        high = np.uint64(0)
        if valid.size == 0 or valid[i] != 0:
            length = lengths[i]
            if length < 1 or length > 16:
                return i
            start = positions[i]
            if data[start] & np.uint8(0x80):
                low = ~low
                high = ~high
            for j in range(length):
                high = (high << np.uint64(8)) | (low >> np.uint64(56))
                low = (low << np.uint64(8)) | np.uint64(data[start + j])
        words[2 * i] = np.int64(low)
        words[2 * i + 1] = np.int64(high)
    return ALL_GOOD
