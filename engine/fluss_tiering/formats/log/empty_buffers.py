"""Compressed buffers without bytes, as Arrow's Java library writes them: a length of 0, and no data behind it.

Fluss's servers and clients write such buffers for the children of lists and maps of which a batch has no elements. The
C++ library of Arrow, which reads here, takes no bytes for a damaged frame of LZ4. It reads a buffer whose own length is
0 as it should.
"""

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
