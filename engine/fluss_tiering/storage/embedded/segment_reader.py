"""Reading a bucket's segment files by mapping them into memory, and checking the newest one after a crash.

The server may append to a file while it is read. This is safe because acknowledged bytes never change, and bytes after
the range that a caller names are not read.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_tiering.formats.log.batch import (
    LogBatch,
    LogBatchHeader,
    check_crc,
    find_whole_batch,
    read_header,
    seek_batch,
)
from fluss_tiering.formats.log.decoding import decode_stored_batch
from fluss_tiering.formats.stored_schemas import StoredSchemas
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.embedded.layout import base_offset_of, segment_file
from fluss_tiering.storage.files import corrupt, reporting_os_errors
from fluss_tiering.storage.reading import rewording_corrupt_data

CORRUPT_LOG_REMEDY: Final = "restore the file from a backup, or drop the table and load it again"
_DROPPED_BYTES: Final = 16 << 20
"""How many bytes of a segment are read before they are taken out of memory."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A whole log batch in a mapped segment file."""

    path: Path
    segment: memoryview
    position: int
    header: LogBatchHeader

    @property
    def raw(self) -> memoryview:
        """The batch's bytes."""
        return self.segment[self.position : self.position + self.header.size]

    def decode(self, schemas: StoredSchemas) -> LogBatch:
        """Check the batch's checksum and return its records with the wanted columns; see `decode_stored_batch`.

        Raises:
            FlussTieringError: CORRUPT_DATA if the batch is damaged; INVALID_TABLE if its schema is newer.
        """
        with naming_segment(self.path):
            return decode_stored_batch(self.segment, self.position, schemas)


def list_segments(folder: Path) -> list[int]:
    """Return the base offsets of the segments in a folder, ascending.

    Raises:
        FlussTieringError: CORRUPT_DATA if the folder is missing or has a file that is no segment.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names alone, as in `open_table`
    except (FileNotFoundError, NotADirectoryError):
        raise corrupt(folder, "is missing", "the folder of a bucket's log", CORRUPT_LOG_REMEDY) from None
    base_offsets = []
    for name in names:
        base_offset = base_offset_of(name)
        if base_offset is None:
            raise corrupt(
                folder / name, "is foreign", "only segments named by 20 digits and .log here", "move the file away"
            )
        base_offsets.append(base_offset)
    return sorted(base_offsets)


def stored_batches(folder: Path, start_offset: int, end_offset: int) -> Iterator[StoredBatch]:
    """Yield the batches of a bucket's log that hold the offsets [start_offset, end_offset), in order.

    Args:
        folder: The folder of the bucket's segments.
        start_offset: The offset of the first wanted record, which may be within the first batch.
        end_offset: The offset after the last wanted record, at most the acknowledged end of the log.

    Raises:
        FlussTieringError: LOG_OFFSET_OUT_OF_RANGE if the log does not hold this range; CORRUPT_DATA if a batch is
            damaged or missing.
    """
    if start_offset == end_offset:
        return
    base_offsets = list_segments(folder)
    first = bisect_right(base_offsets, start_offset) - 1
    if first < 0 or start_offset > end_offset:
        raise _out_of_range(folder, start_offset, end_offset)
    expected: int | None = None
    for base_offset in base_offsets[first:]:
        path = segment_file(folder, base_offset)
        if expected is not None and base_offset != expected:
            raise corrupt(path, f"starts at offset {base_offset}", f"offset {expected}", CORRUPT_LOG_REMEDY)
        segment = map_segment(path)
        with naming_segment(path):
            position = seek_batch(segment, start_offset) if expected is None else 0
            dropped = 0
            while (header := read_header(segment, position)) is not None:
                wanted = start_offset if expected is None else expected
                if not header.base_offset <= wanted <= header.last_offset:
                    raise missing_batch(header, position, wanted)
                yield StoredBatch(path, segment, position, header)
                position += header.size
                if position - dropped >= _DROPPED_BYTES:
                    dropped = _drop(segment, dropped, position)
                expected = header.next_offset
                if expected >= end_offset:
                    return
    raise _out_of_range(folder, start_offset, end_offset)


def missing_batch(header: LogBatchHeader, position: int, offset: int) -> FlussTieringError:
    """Return CORRUPT_DATA for a batch that is where a batch with another offset should be."""
    return FlussTieringError(
        ErrorCode.CORRUPT_DATA,
        f"the log batch at position {position} holds the offsets {header.base_offset} to {header.last_offset}: "
        f"expected {offset}",
    )


def map_segment(path: Path) -> memoryview:
    """Map a segment file into memory, so that its bytes are read when they are used."""
    with reporting_os_errors("read", path), path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _drop(segment: memoryview, start: int, end: int) -> int:
    """Take a part of a mapped segment out of memory, up to the last whole page; return the end of that part.

    Whoever still uses the part reads it from the file again.
    """
    mapped = segment.obj
    end -= end % mmap.PAGESIZE
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, start, end - start)
    return end


def naming_segment(path: Path) -> AbstractContextManager[None]:
    """Add the file and the remedy to a CORRUPT_DATA error of the decoder, which knows only the position."""
    return rewording_corrupt_data(lambda message: f"{path}: {message}; {CORRUPT_LOG_REMEDY}")


def _out_of_range(folder: Path, start_offset: int, end_offset: int) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
        f"the log in {folder} does not hold the offsets {start_offset} to {end_offset}: expected a range between its "
        "start and its acknowledged end; ask for the bucket's offsets again",
    )


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
