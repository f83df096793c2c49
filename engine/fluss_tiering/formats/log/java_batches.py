"""What Arrow's Java library, which Fluss writes with, leaves out of batches, and its C++ library needs to read them."""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.ipc import child_of_header, has_compressed_buffers

_BUFFERS_FIELD: Final = 2
"""The field `buffers` of `RecordBatch` in Arrow's Message.fbs."""
_BUFFER: Final = struct.Struct("<qq")
"""`Buffer`: its offset in the body, and its length."""
_PREFIX: Final = struct.Struct("<II")
"""What precedes the metadata of a message: a mark, and the size of the metadata."""
_MARK: Final = 0xFFFF_FFFF
_NOTHING: Final = bytes(8)
"""The length that precedes the data of a compressed buffer, where there is no data."""


def without_empty_frames(message: pa.Buffer) -> pa.Buffer | None:
    """Return a message of a record batch whose compressed buffers without bytes have the length 0.

    Args:
        message: The message, with its metadata and its body.

    Returns:
        The message; None if it has no such buffers, or if it is no message of a record batch.
    """
    content = memoryview(message)
    try:
        mark, size = _PREFIX.unpack_from(content)
        metadata = bytearray(content[_PREFIX.size : _PREFIX.size + size])
        buffers = child_of_header(metadata, _BUFFERS_FIELD)
        if mark != _MARK or buffers is None or not has_compressed_buffers(metadata):
            return None
        body = content[_PREFIX.size + size :]
        (count,) = struct.unpack_from("<I", metadata, buffers)
        changed = False
        for position in range(buffers + 4, buffers + 4 + count * _BUFFER.size, _BUFFER.size):
            offset, length = _BUFFER.unpack_from(metadata, position)
            if length == len(_NOTHING) and body[offset : offset + length] == _NOTHING:
                _BUFFER.pack_into(metadata, position, offset, 0)
                changed = True
    except struct.error:
        return None
    return pa.py_buffer(b"".join([content[: _PREFIX.size], metadata, body])) if changed else None


def with_offsets(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return records that were decoded, with offsets in all lists that have none."""
    for number, field in enumerate(records.schema):
        if pa.types.is_nested(field.type):
            before = records.column(number)
            after = _with_offsets(before)
            if after is not before:
                records = records.set_column(number, field, after)
    return records


def _with_offsets(array: pa.Array) -> pa.Array:
    """Return the array itself if it lacks nothing."""
    kind = array.type
    if pa.types.is_struct(kind):
        parts = [array.field(number) for number in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        if len(array) == 0:
            return pa.array([], kind)
        parts = [array.values]
    else:
        return array
    whole = [_with_offsets(part) for part in parts]
    if all(after is before for after, before in zip(whole, parts, strict=True)):
        return array
    own = array.buffers()[: 1 if pa.types.is_struct(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), own, offset=array.offset, children=whole)
