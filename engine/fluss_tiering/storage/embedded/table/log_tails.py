"""The ends of a table's logs, which the offsets file of a lake snapshot notes.

Tables that are put back from a backup may be older than their lake. Their logs give offsets that the lake has to other
rows, and once they have grown past the lake's offsets, nothing else tells that these rows are not in the lake.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import OLDER_TABLE_REMEDY
from fluss_tiering.model.table import TablePath
from fluss_tiering.storage.embedded.lake_offsets import TAILS_KEY, LogTail
from fluss_tiering.storage.embedded.log.segment_reader import stored_batches
from fluss_tiering.storage.embedded.table.bucket import LogBucket
from fluss_tiering.storage.files import corrupt, read_json

_REMEDY: Final = "restore it from a backup"


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
