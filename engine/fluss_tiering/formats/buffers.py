"""Arrow arrays as the plain numpy arrays that compiled loops take. Arrays of the same width are not copied."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.compiled import Int32s, Int64s, UInt8s
from fluss_tiering.formats.decimal_kernels import decimals_to_bytes
from fluss_tiering.formats.schema import UNIT_PRECISION
from fluss_tiering.model.data_type import DataType, DataTypeRoot

_MILLISECOND_DIGITS: Final = 3
NO_BYTES: Final[UInt8s] = np.empty(0, np.uint8)
NO_INT32S: Final[Int32s] = np.empty(0, np.int32)
NO_INT64S: Final[Int64s] = np.empty(0, np.int64)


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
