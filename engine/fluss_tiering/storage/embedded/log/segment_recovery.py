"""What a crash may have left of a bucket's newest segment.

A killed process leaves a proper beginning of the batches it was writing; a machine that lost its power may also leave
zeros, or a last batch whose checksum fails. Only these are a torn tail. Whatever else is wrong is damage to
acknowledged rows, and cutting that off would lose them silently: it is refused.
"""

from __future__ import annotations

from pathlib import Path

from fluss_tiering.formats.log.batch import LogBatchHeader, check_crc, read_header
from fluss_tiering.formats.log.scan import find_whole_batch
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.storage.embedded.log.segment_reader import (
    CORRUPT_LOG_REMEDY,
    map_segment,
    missing_batch,
    naming_segment,
)
from fluss_tiering.storage.files import corrupt


def scan_segment(path: Path, base_offset: int) -> tuple[int, int]:
    """Checks every batch of a segment.

    Returns:
        How many bytes of whole batches it starts with, and the offset behind them; what follows is a torn tail.

    Raises:
        FlussTieringError: CORRUPT_DATA naming file and position when the damage is no torn tail.
    """
    segment = map_segment(path)
    position, offset = 0, base_offset
    with naming_segment(path):
        while (header := _whole_batch(segment, position)) is not None:
            if header.base_offset != offset:
                raise missing_batch(header, position, offset)
            position += header.size
            offset = header.next_offset
    survivor = find_whole_batch(segment, position, offset)
    if survivor is not None:
        raise corrupt(
            path,
            f"is damaged from position {position} on, and a whole batch stands behind that at position {survivor}",
            f"the batch of offset {offset} at position {position}",
            CORRUPT_LOG_REMEDY,
        )
    return position, offset


def _whole_batch(segment: memoryview, position: int) -> LogBatchHeader | None:
    """The header of the batch at a position once its checksum is found right; None where a torn tail begins."""
    try:
        header = read_header(segment, position)
    except FlussTieringError:
        tail = bytes(segment[position:])
        if tail.count(0) == len(tail):
            return None
        raise
    if header is None:
        return None
    try:
        check_crc(segment, position, header)
    except FlussTieringError:
        if position + header.size == len(segment):
            return None
        raise
    return header
