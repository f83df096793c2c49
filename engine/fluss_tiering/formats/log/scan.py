"""Finds log batches in the bytes of a log without decoding them: by offset, or behind a damaged place."""

from __future__ import annotations

import struct
from typing import Final

from fluss_tiering.formats.log.batch import check_crc, read_header
from fluss_tiering.model.errors import FlussTieringError

_PREFIX: Final = struct.Struct("<qib")
_DELTA: Final = struct.Struct("<i")
_DELTA_POSITION: Final = {0: 28, 1: 32}
"""Of the last offset delta within a batch, by magic."""
_LENGTH_END: Final = 12
_NO_WRITER: Final = struct.pack("<qi", -1, -1)
_NO_WRITER_POSITION: Final = 32
"""Of writer id and batch sequence within a batch as `encode_log_batch` makes it, which names no writer."""


def seek_batch(log: memoryview, offset: int) -> int:
    """The position of the first batch that ends behind an offset, or of what stands behind the last one before it.

    Goes from header to header and looks at nothing behind the batch it finds; about a million batches a second.
    """
    position = 0
    limit = len(log) - _DELTA_POSITION[1] - _DELTA.size
    while position <= limit:
        base_offset, length, magic = _PREFIX.unpack_from(log, position)
        delta_position = _DELTA_POSITION.get(magic)
        if delta_position is None or length < 0:
            return position
        if base_offset + _DELTA.unpack_from(log, position + delta_position)[0] >= offset:
            return position
        position += _LENGTH_END + length
    return position


def find_whole_batch(log: memoryview, position: int, after_offset: int) -> int | None:
    """The position of a whole batch behind a place where none is, or None when there is none of ours.

    Args:
        log: bytes of a log that this package wrote.
        position: where the search begins.
        after_offset: a lower bound, exclusive, of the batch's base offset.
    """
    tail = bytes(log[position:])
    found = tail.find(_NO_WRITER)
    while found >= 0:
        candidate = found - _NO_WRITER_POSITION
        if candidate >= 0 and _is_whole(memoryview(tail), candidate, after_offset):
            return position + candidate
        found = tail.find(_NO_WRITER, found + 1)
    return None


def _is_whole(log: memoryview, position: int, after_offset: int) -> bool:
    try:
        header = read_header(log, position)
        if header is None or header.base_offset <= after_offset:
            return False
        check_crc(log, position, header)
    except FlussTieringError:
        return False
    return True
