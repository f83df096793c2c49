"""The batches of rows by key that clients and servers of Fluss send each other, all in little-endian order.

PUT_KV takes written rows (Fluss's `DefaultKvRecordBatch`):

    length i32 · magic i8 · CRC32C u32 · schema id i16 · attributes i8 · writer id i64 · batch sequence i32 · count i32

then for each record its length as i32, the key's length as a varint, the key and, unless it is a delete, the compacted
row. The checksum covers the bytes after it. A scan session gives rows (Fluss's `DefaultValueRecordBatch`):

    length i32 · magic i8 · count i32

then for each row its length as i32 and its stored value. A length is the number of bytes that follow it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from fluss_tiering.formats.compiled import ALL_GOOD, INT32_OUT, INT64, UINT8_IN, UINT8_OUT, Int32s, UInt8s, compiled
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_WRITTEN: Final = struct.Struct("<ibIhbqii")
_SCANNED: Final = struct.Struct("<ibi")
_MAGIC: Final = 0
_LENGTH: Final = struct.Struct("<i")
_CRC: Final = struct.Struct("<I")
_CRC_AT: Final = 5
_NO_WRITER: Final = -1
_SCHEMA_ID_BYTES: Final = 2


def encode_kv_batch(keys: Sequence[bytes], values: Sequence[bytes | None], schema_id: int) -> bytes:
    """Encode a batch without a writer id.

    Args:
        keys: The keys in the table's key encoding.
        values: The values as they are stored, each a schema id and a compacted row; None for a delete.
    """
    records = b"".join(_record(key, value) for key, value in zip(keys, values, strict=True))
    length = _WRITTEN.size - _LENGTH.size + len(records)
    header = bytearray(_WRITTEN.pack(length, 0, 0, schema_id, 0, _NO_WRITER, _NO_WRITER, len(keys)))
    _CRC.pack_into(header, _CRC_AT, crc32c(records, crc32c(header[_CRC_AT + _CRC.size :])))
    return bytes(header) + records


def _record(key: bytes, value: bytes | None) -> bytes:
    content = _varint(len(key)) + key + (b"" if value is None else value[_SCHEMA_ID_BYTES:])
    return _LENGTH.pack(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def stored_values(records: bytes) -> pa.BinaryArray:
    """Return the rows as stored values, which `decode_values` decodes: each has a schema id and a compacted row.

    Raises:
        FlussTieringError: CORRUPT_DATA if the bytes are no such rows; UNSUPPORTED_VERSION if their format is newer.
    """
    if not records:
        return pa.array([], pa.binary())
    if len(records) < _SCANNED.size:
        raise _corrupt(f"{len(records)} bytes are too few for the header")
    length, magic, count = _SCANNED.unpack_from(records)
    if magic != _MAGIC:
        raise FlussTieringError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"scanned rows have the magic {magic}: expected {_MAGIC}, the only format that is supported; upgrade "
            "fluss-tiering",
        )
    size = len(records) - _SCANNED.size - _LENGTH.size * count
    if length != len(records) - 4 or count < 0 or size < 0:
        raise _corrupt(f"the header has the length {length} and {count} rows in {len(records)} bytes")
    offsets = np.zeros(count + 1, np.int32)
    values = np.empty(size, np.uint8)
    bad = _take_values(np.frombuffer(records, np.uint8, offset=_SCANNED.size), offsets, values)
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
