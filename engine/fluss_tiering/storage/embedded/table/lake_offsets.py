"""The offsets files of lake snapshots in Fluss's format (`TableBucketOffsetsJsonSerde`), with the ends of the logs.

Tables that are put back from a backup may be older than their lake. Their logs give offsets that the lake has to other
rows, and once they have grown past the lake's offsets, nothing else tells that these rows are not in the lake. So an
offsets file notes where the logs ended when it was written.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from fluss_tiering.formats.lake_offsets import offsets_to_json
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import OLDER_TABLE_REMEDY
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.storage.embedded.layout import METADATA_FOLDER, OFFSETS_SUFFIX
from fluss_tiering.storage.embedded.segment_reader import stored_batches
from fluss_tiering.storage.embedded.table.bucket import LogBucket
from fluss_tiering.storage.files import corrupt, read_json, reporting_os_errors, write_durably

LogTail: TypeAlias = tuple[int | None, int, int, int]
"""The id of a partition or None, the number of a bucket, the end of its log, and the commit time in milliseconds of the
batch that ends there."""

TAILS_KEY: Final = "log_tails"
"""The key of the ends of the logs in an offsets file. Fluss's own files have none."""
_MISSING: Final = -1
_LATEST_COMMIT_S: Final = 24 * 60 * 60
"""A round that wrote its offsets file so long before the last registered one can no longer commit: it is fenced."""
_CLEANUP_INTERVAL_S: Final = 10 * 60
"""How long the files of a table are left alone after a look at all of them.

Those of a whole day are there, and a table may be committed each second.
"""
_REMEDY: Final = "restore it from a backup"


def write_offsets_file(
    folder: Path, info: TableInfo, log_end_offsets: Mapping[TableBucket, int], tails: Sequence[LogTail] = ()
) -> Path:
    """Write a new offsets file durably into a table's folder, and return its path.

    Args:
        folder: The table's folder.
        log_end_offsets: Bucket -> offset up to which, exclusive, the log is in the lake. A bucket without rows in the
            lake has -1 or is left out.
        tails: The ends of the logs, against which the file is checked later.

    Raises:
        FlussTieringError: INVALID_REQUEST if the table has no such bucket, or an offset is less than -1; STORAGE if the
            disk refuses.
    """
    num_buckets = info.descriptor.num_buckets
    is_partitioned = bool(info.descriptor.partition_keys)
    for bucket, offset in log_end_offsets.items():
        if (
            bucket.table_id != info.table_id
            or (bucket.partition_id is None) == is_partitioned
            or not 0 <= bucket.bucket < num_buckets
        ):
            kind = "each of its partitions" if is_partitioned else f"table {info.table_id}"
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{bucket} is none of {info.path}: expected buckets 0 to {num_buckets - 1} of {kind}",
            )
        if offset < _MISSING:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, f"{bucket} has the log end offset {offset}: expected -1 or more"
            )
    partitions = {bucket.partition_id for bucket in log_end_offsets} if is_partitioned else {None}
    every = [TableBucket(info.table_id, number, each) for each in partitions for number in range(num_buckets)]
    offsets = {bucket: log_end_offsets.get(bucket, _MISSING) for bucket in every}
    path = folder / METADATA_FOLDER / f"{uuid.uuid4()}{OFFSETS_SUFFIX}"
    with reporting_os_errors("write", path):
        write_durably(path, offsets_to_json(info.table_id, offsets, {TAILS_KEY: tails} if tails else None))
    return path


def is_offsets_file(folder: Path, path: Path) -> bool:
    """Return whether there is an offsets file at this path, in a table's folder."""
    return path.suffix == OFFSETS_SUFFIX and path.parent == folder / METADATA_FOLDER and path.is_file()


class OldOffsetsFiles:
    """The offsets files in a table's folder that nobody needs any more. It allows concurrent calls."""

    def __init__(self, folder: Path) -> None:
        """Look through no file yet."""
        self._folder = folder / METADATA_FOLDER
        self._cleaned_at: float | None = None

    def delete(self, registered: Path, kept: Collection[str]) -> int:
        """Delete the files, unless that was done a few minutes ago; see `TableStorage.delete_lake_offsets`.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        deleted = 0
        with reporting_os_errors("delete old offsets files in", self._folder):
            written = registered.stat().st_mtime
            if self._cleaned_at is not None and 0 <= written - self._cleaned_at < _CLEANUP_INTERVAL_S:
                return 0
            for file in self._folder.glob(f"*{OFFSETS_SUFFIX}"):
                is_needed = str(file) in kept or file == registered
                if not is_needed and file.stat().st_mtime < written - _LATEST_COMMIT_S:
                    file.unlink(missing_ok=True)
                    deleted += 1
            self._cleaned_at = written
        return deleted


def log_tails(buckets: Iterable[LogBucket]) -> list[LogTail]:
    """Return the ends of the logs that are known: those of all logs but empty ones."""
    return [
        (bucket.bucket.partition_id, bucket.bucket.bucket, *tail)
        for bucket in buckets
        if (tail := bucket.log_tail) is not None
    ]


def check_log_tails(path: TablePath, buckets: Iterable[LogBucket], offsets_file: Path) -> None:
    """Check that the logs of a table are those for which an offsets file was written.

    Logs and parts of them that are no longer kept prove nothing, and a file of an earlier version notes no ends.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if a log is shorter now, or has other rows; CORRUPT_DATA if the file is
            damaged; STORAGE if it cannot be read.
    """
    content = read_json(offsets_file, _REMEDY)
    try:
        noted: list[LogTail] = [
            (partition_id, int(number), int(end), int(timestamp))
            for partition_id, number, end, timestamp in content.get(TAILS_KEY, ())
        ]
    except (TypeError, ValueError) as error:
        raise corrupt(offsets_file, f"is no offsets file: {error}", "the JSON that a round wrote", _REMEDY) from error
    known = {(bucket.bucket.partition_id, bucket.bucket.bucket): bucket for bucket in buckets}
    for partition_id, number, end, timestamp in noted:
        bucket = known.get((partition_id, number))
        if bucket is None or bucket.log_tail == (end, timestamp) or bucket.info().log_start_offset >= end:
            continue
        if bucket.log_end_offset < end:
            raise _older(path, f"the log of {bucket.bucket} ends at offset {bucket.log_end_offset} and ended at {end}")
        header = next(iter(stored_batches(bucket.log_folder, end - 1, end))).header
        if (header.next_offset, header.commit_timestamp) != (end, timestamp):
            raise _older(path, f"the log of {bucket.bucket} has other rows before offset {end} than it had")


def _older(path: TablePath, what: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.LAKE_TABLE_MISMATCH,
        f"the lake of the table {path} is newer than the table: {what} when the newest lake snapshot was "
        f"made. Such a table was restored from an older backup than its lake: {OLDER_TABLE_REMEDY}",
    )
