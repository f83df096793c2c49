"""A bucket's log as a series of segment files.

An append has three steps, so that a write to several buckets is done in all of them or in none: `stage` writes after
the acknowledged end, `sync` makes that durable, and `publish` moves the end. Before `publish`, `rollback` cuts the
staged bytes off again. Readers read only before the acknowledged end (`segment_reader`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.grouping import parts_of
from fluss_tiering.formats.log.batch import ChangeTypes, LogCompression, encode_log_batch
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.plural import counted
from fluss_tiering.storage.embedded.layout import segment_file
from fluss_tiering.storage.embedded.segment_reader import CORRUPT_LOG_REMEDY, list_segments, scan_segment
from fluss_tiering.storage.files import corrupt, reporting_os_errors, sync_directory
from fluss_tiering.storage.writes import compression_of

logger = logging.getLogger(__name__)

DEFAULT_SEGMENT_BYTES: Final = 128 * 1024 * 1024
_BATCH_ROWS: Final = 65_536
_BATCH_BYTES: Final = 8 << 20
"""The size of a batch before compression. One with rows of different sizes has twice as much at most."""


@dataclass(slots=True)
class _Staged:
    descriptor: int
    path: Path
    is_new: bool
    size: int
    next_offset: int
    commit_timestamp: int


class SegmentedLog:
    """The segment files of one bucket. The caller holds the bucket's lock.

    Attributes:
        end_offset: The end of the log, exclusive. Everything before it is durable and acknowledged.
        tail: The end of the log, and the commit time in milliseconds of the batch that ends there; None if the newest
            segment has no batch. It is one value, so that readers without the lock see both parts of the same batch.
    """

    def __init__(
        self,
        folder: Path,
        segment_bytes: int,
        base_offsets: list[int],
        end_offset: int,
        last_timestamp: int | None = None,
    ) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._base_offsets = base_offsets
        self._active_size = segment_file(folder, base_offsets[-1]).stat().st_size if base_offsets else 0
        self._closed_size = sum(segment_file(folder, base).stat().st_size for base in base_offsets[:-1])
        self._staged: _Staged | None = None
        self._failure: str | None = None
        self.end_offset = end_offset
        self.tail = None if last_timestamp is None else (end_offset, last_timestamp)

    @classmethod
    def recover(cls, folder: Path, *, segment_bytes: int, least_end_offset: int) -> SegmentedLog:
        """Open the log in a folder and cut off the torn batch that a crash may have left at its end.

        Args:
            folder: The folder of the bucket's segments.
            segment_bytes: The size at which a new segment begins.
            least_end_offset: An end of the log that is known to have been acknowledged.

        Raises:
            FlussTieringError: CORRUPT_DATA if anything else is wrong with the last segment, if acknowledged rows are
                missing, or if there is a foreign file.
        """
        base_offsets = list_segments(folder)
        end_offset, last_timestamp = 0, None
        if base_offsets:
            path = segment_file(folder, base_offsets[-1])
            whole = scan_segment(path, base_offsets[-1])
            end_offset, last_timestamp = whole.end_offset, whole.commit_timestamp
        if end_offset < least_end_offset:
            where = segment_file(folder, base_offsets[-1]) if base_offsets else folder
            raise corrupt(
                where,
                f"ends at offset {end_offset}",
                f"offset {least_end_offset}, acknowledged before",
                CORRUPT_LOG_REMEDY,
            )
        if base_offsets:
            with reporting_os_errors("recover", path):
                torn_bytes = path.stat().st_size - whole.size
                if torn_bytes:
                    logger.warning(
                        "%s: cut off %s after the last whole batch at position %d, so that the log ends at "
                        "offset %d. A crash in a write leaves such bytes, before the write is acknowledged. If there "
                        "was no crash, check the disk",
                        path,
                        counted(torn_bytes, "byte"),
                        whole.size,
                        end_offset,
                    )
                _cut(path, whole.size)
        return cls(folder, segment_bytes, base_offsets, end_offset, last_timestamp)

    @property
    def start_offset(self) -> int:
        """The first offset that is kept."""
        return self._base_offsets[0] if self._base_offsets else 0

    @property
    def size_bytes(self) -> int:
        """The size of all segments, up to the acknowledged end."""
        return self._closed_size + self._active_size

    def stage(self, batches: Iterable[bytes], next_offset: int, commit_timestamp: int) -> None:
        """Write whole batches of a commit time, which end before `next_offset`, after the end into one segment.

        Raises:
            FlussTieringError: STORAGE if the write fails, or if an earlier write could not be taken back.
        """
        if self._failure is not None:
            raise FlussTieringError(ErrorCode.STORAGE, self._failure)
        is_new = not self._base_offsets or self._active_size >= self._segment_bytes
        path = segment_file(self._folder, self.end_offset if is_new else self._base_offsets[-1])
        with reporting_os_errors("append to", path):
            descriptor = os.open(path, os.O_WRONLY | (os.O_CREAT | os.O_EXCL if is_new else 0), 0o644)
            staged = _Staged(
                descriptor, path, is_new, 0 if is_new else self._active_size, next_offset, commit_timestamp
            )
            self._staged = staged
            for batch in batches:
                staged.size = _write_all(descriptor, batch, staged.size)

    def sync(self) -> None:
        """Make the staged batches durable, if there are any."""
        staged = self._staged
        if staged is None:
            return
        with reporting_os_errors("sync", staged.path):
            os.fsync(staged.descriptor)
            if staged.is_new:
                sync_directory(self._folder)

    def publish(self) -> None:
        """Move the acknowledged end to the end of the staged and synced batches, if there are any."""
        staged = self._staged
        if staged is None:
            return
        self._staged = None
        with suppress(OSError):  # The file is synced, so closing can lose nothing.
            os.close(staged.descriptor)
        if staged.is_new:
            self._closed_size += self._active_size
            self._base_offsets.append(self.end_offset)
        self._active_size = staged.size
        self.end_offset = staged.next_offset
        self.tail = staged.next_offset, staged.commit_timestamp

    def rollback(self) -> None:
        """Take back the staged batches, if there are any. If that fails, refuse all later writes."""
        staged = self._staged
        if staged is None:
            return
        self._staged = None
        try:
            if staged.is_new:
                staged.path.unlink()
            else:
                os.ftruncate(staged.descriptor, self._active_size)
        except OSError as error:
            self._failure = (
                f"{staged.path} takes no more writes, since a failed one could not be taken back ({error.strerror}): "
                "check the disk, then restart the server"
            )
        # This may fail. Without it, a loss of power could bring the failed write back until a later one replaces it.
        with suppress(OSError):
            os.fsync(staged.descriptor)
        with suppress(OSError):
            os.close(staged.descriptor)


def _write_all(descriptor: int, data: bytes, position: int) -> int:
    """Write at a position and return the position after the written bytes."""
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, position)
        position += written
        left = left[written:]
    return position


def _cut(path: Path, size: int) -> None:
    """Cut a segment to a size and sync it, also if it has that size, since it may not have been synced yet."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class LogEncoding:
    """How the batches of one table are written."""

    schema_id: int
    compression: LogCompression

    @classmethod
    def of(cls, info: TableInfo) -> LogEncoding:
        """Return the encoding that the table's descriptor asks for."""
        return cls(info.schema_id, compression_of(info.descriptor))

    def batches(
        self, records: pa.RecordBatch, change_types: ChangeTypes | None, base_offset: int, commit_timestamp: int
    ) -> Iterator[bytes]:
        """Yield consecutive batches that hold the records from `base_offset` on."""
        start = 0
        for part in parts_of(records, _BATCH_BYTES, _BATCH_ROWS):
            end = start + part.num_rows
            yield encode_log_batch(
                base_offset + start,
                commit_timestamp,
                part,
                schema_id=self.schema_id,
                change_types=None if change_types is None else change_types[start:end],
                compression=self.compression,
            )
            start = end
