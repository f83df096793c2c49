"""Parts of logs that were deleted before they were tiered, and what a round does about them. It does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, TableBucket
from fluss_tiering.plural import counted

_NAMED: Final = 3
"""How many buckets an error names."""


@dataclass(frozen=True, slots=True)
class LostLog:
    """A part of a bucket's log that was deleted before it was tiered.

    Attributes:
        start_offset: The first offset that is not in the lake.
    """

    info: BucketInfo
    start_offset: int

    def __str__(self) -> str:
        partition = f" ({', '.join(self.info.partition_values)})" if self.info.partition_values else ""
        return f"{self.info.bucket}{partition}: offsets {self.start_offset} to {self.info.log_start_offset - 1}"


def begins_at_log_start(tiered: Mapping[TableBucket, int], *, has_primary_key: bool) -> bool:
    """Return whether buckets begin where their logs begin: those of a log table of which nothing was tiered yet.

    Retention may have deleted records before tiering was switched on. They are not missing.
    """
    return not has_primary_key and not any(offset >= 0 for offset in tiered.values())


def lost_logs(
    buckets: Iterable[BucketInfo], tiered: Mapping[TableBucket, int], *, has_primary_key: bool
) -> list[LostLog]:
    """Return what was deleted of the logs of a table before it was tiered.

    Args:
        buckets: The buckets with the ranges of their logs.
        tiered: The log end offsets that are in the lake. A bucket with nothing in the lake is missing or negative.
        has_primary_key: Whether the table has a primary key. Its buckets begin with a KV snapshot, not with their log.
    """
    if begins_at_log_start(tiered, has_primary_key=has_primary_key):
        return []
    least = 0 if has_primary_key else -1
    starts = ((info, tiered.get(info.bucket, -1)) for info in buckets)
    lost = (LostLog(info, max(start, 0)) for info, start in starts if start >= least)
    return [each for each in lost if each.start_offset < each.info.log_start_offset]


def lost_error(lost: Sequence[LostLog], *, has_primary_key: bool) -> FlussTieringError:
    """Return the error of a round that was not told to skip what is lost."""
    more = f" and in {counted(len(lost) - _NAMED, 'more bucket')}" if len(lost) > _NAMED else ""
    how = "reads these buckets again from their KV snapshots" if has_primary_key else "goes on without these records"
    return FlussTieringError(
        ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
        f"the log was deleted before it was tiered, in {'; in '.join(map(str, lost[:_NAMED]))}{more}: expected it to "
        "be kept until then; tier the table more often, or keep its log longer (table.log.ttl). A round with "
        f"--skip-missing-log {how}",
    )


def no_snapshot_error(info: BucketInfo) -> FlussTieringError:
    """Return the error of a round that needs a KV snapshot of a bucket, and has none."""
    return FlussTieringError(
        ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
        f"{info.bucket}: its log begins at offset {info.log_start_offset}, and no KV snapshot has the rows from "
        "before: expected one; tier the table again when the storage has taken one",
    )
