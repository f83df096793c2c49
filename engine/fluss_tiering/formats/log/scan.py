"""The search for log batches in the bytes of a log, by offset or after a damaged place, without decoding them."""

from __future__ import annotations

import struct
from typing import Final

from fluss_tiering.formats.log.batch import check_crc, read_header
from fluss_tiering.model.errors import FlussTieringError

_PREFIX: Final = struct.Struct("<qib")
_DELTA: Final = struct.Struct("<i")
_DELTA_POSITION: Final = {0: 28, 1: 28, 2: 32}
"""The position of the last offset delta in a batch, by magic."""
_LENGTH_END: Final = 12
_NO_WRITER: Final = struct.pack("<qi", -1, -1)
_NO_WRITER_POSITION: Final = 32
"""The position of writer id and batch sequence in a batch that `encode_log_batch` made. It names no writer."""


def seek_batch(log: memoryview, offset: int) -> int:
    """Return the position of the first batch whose last offset is not below an offset.

    If there is no such batch, the result is the position after the last batch. The search goes from header to header,
    through about a million batches per second. It reads nothing after the batch that it finds.
    """
    position = 0
    limit = len(log) - max(_DELTA_POSITION.values()) - _DELTA.size
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
    """Return the position of a whole batch after a damaged place, or None if there is none.

    Args:
        log: The bytes of a log that this package wrote.
        position: The position at which the search begins.
        after_offset: The offset that the base offset of the batch must exceed.
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
