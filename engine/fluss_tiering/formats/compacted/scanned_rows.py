"""The rows of a scan session as a Fluss server sends them (Fluss's `DefaultValueRecordBatch`)."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.compiled import ALL_GOOD, INT32_OUT, INT64, UINT8_IN, UINT8_OUT, Int32s, UInt8s, compiled
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_HEADER: Final = struct.Struct("<ibi")
"""The number of bytes after it, the magic and the number of rows."""
_MAGIC: Final = 0
_SIZE_BYTES: Final = 4


def stored_values(records: bytes) -> pa.BinaryArray:
    """Return the rows as stored values, which `decode_values` decodes: each has a schema id and a compacted row.

    Raises:
        FlussTieringError: CORRUPT_DATA if the bytes are no such rows; UNSUPPORTED_VERSION if their format is newer.
    """
    if not records:
        return pa.array([], pa.binary())
    if len(records) < _HEADER.size:
        raise _corrupt(f"{len(records)} bytes are too few for the header")
    length, magic, count = _HEADER.unpack_from(records)
    if magic != _MAGIC:
        raise FlussTieringError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"scanned rows have the magic {magic}: expected {_MAGIC}, the only format that is supported; upgrade "
            "fluss-tiering",
        )
    size = len(records) - _HEADER.size - _SIZE_BYTES * count
    if length != len(records) - 4 or count < 0 or size < 0:
        raise _corrupt(f"the header has the length {length} and {count} rows in {len(records)} bytes")
    offsets = np.zeros(count + 1, np.int32)
    values = np.empty(size, np.uint8)
    bad = _take_values(np.frombuffer(records, np.uint8, offset=_HEADER.size), offsets, values)
    if bad != ALL_GOOD:
        raise _corrupt(f"row {bad} of {count} goes beyond the end" if bad < count else f"bytes follow the {count} rows")
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


@compiled(UINT8_IN, INT32_OUT, UINT8_OUT, result=INT64)
def _take_values(data: UInt8s, offsets: Int32s, values: UInt8s) -> int:
    """Copy the values without the sizes before them.

    Args:
        data: The size of each value, and the value.
        offsets: The n + 1 positions between the values. This function writes all but the first, which is 0.
        values: The bytes of the values. This function writes them. There is room for the bytes of `data` that are not
            sizes.

    Returns:
        The first row that goes beyond the end; the number of rows if bytes are left; or ALL_GOOD.
    """
    position = np.int64(0)
    for row in range(offsets.size - 1):
        if position + 4 > data.size:
            return row
        size = (
            np.int64(data[position])
            | np.int64(data[position + 1]) << 8
            | np.int64(data[position + 2]) << 16
            | np.int64(data[position + 3]) << 24
        )
        position += 4
        start = np.int64(offsets[row])
        if size > data.size - position or start + size > values.size:
            return row
        for index in range(size):
            values[start + index] = data[position + index]
        position += size
        offsets[row + 1] = start + size
    return ALL_GOOD if position == data.size else offsets.size - 1


def _corrupt(what: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.CORRUPT_DATA,
        f"scanned rows cannot be read: {what}; expected a batch of rows as Fluss 1.0 sends it; scan again",
    )
