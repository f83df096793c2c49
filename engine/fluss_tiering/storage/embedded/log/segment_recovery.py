"""The check of a bucket's newest segment after a crash.

A killed process leaves a part of the batches that it was writing. A machine that lost its power may also leave zeros,
or a last batch whose checksum is wrong. Only these count as a torn tail, which is cut off. Anything else is damage to
acknowledged rows and is refused, since cutting it off would lose them silently.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ScannedSegment:
    """The whole batches at the start of a segment. What follows them is a torn tail.

    Attributes:
        size: The number of bytes that they take.
        end_offset: The offset after them.
        commit_timestamp: The commit time of the last one in milliseconds, or None if there is none.
    """

    size: int
    end_offset: int
    commit_timestamp: int | None


def scan_segment(path: Path, base_offset: int) -> ScannedSegment:
    """Check every batch of a segment.

    Raises:
        FlussTieringError: CORRUPT_DATA if there is damage other than a torn tail.
    """
    segment = map_segment(path)
    position, offset, timestamp = 0, base_offset, None
    with naming_segment(path):
        while (header := _whole_batch(segment, position)) is not None:
            if header.base_offset != offset:
                raise missing_batch(header, position, offset)
            position += header.size
            offset, timestamp = header.next_offset, header.commit_timestamp
    survivor = find_whole_batch(segment, position, offset)
    if survivor is not None:
        raise corrupt(
            path,
            f"is damaged from position {position} on, and a whole batch follows at position {survivor}",
            f"the batch of offset {offset} at position {position}",
            CORRUPT_LOG_REMEDY,
        )
    return ScannedSegment(position, offset, timestamp)


def _whole_batch(segment: memoryview, position: int) -> LogBatchHeader | None:
    """Return the header of the batch at a position if its checksum is right; None if a torn tail begins there."""
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
