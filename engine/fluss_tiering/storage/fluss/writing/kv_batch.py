"""The batch of rows that PUT_KV takes for a primary-key table (Fluss's `DefaultKvRecordBatch`).

    length i32 · magic i8 · CRC32C u32 · schema id i16 · attributes i8 · writer id i64 · batch sequence i32 · count i32

in little-endian order, then for each record its length as i32, the key's length as a varint, the key and, unless it is
a delete, the compacted row. A length is the number of bytes that follow it, and the checksum covers the bytes after it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

_HEADER: Final = struct.Struct("<ibIhbqii")
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
        schema_id: The schema id of the values.
    """
    records = b"".join(_record(key, value) for key, value in zip(keys, values, strict=True))
    length = _HEADER.size - _LENGTH.size + len(records)
    header = bytearray(_HEADER.pack(length, 0, 0, schema_id, 0, _NO_WRITER, _NO_WRITER, len(keys)))
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
