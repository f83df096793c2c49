"""The plan of a round: from offsets, buckets and snapshots it derives the pieces to read. It does no I/O.

A piece is what one Spark task reads and writes. Each piece has an ordinal. The pieces with the same ordinal become one
row delta of the lake table, and the deletes of an ordinal apply to the rows of all smaller ordinals. In a bucket of a
primary-key table the pieces follow each other in log order, each with its own ordinal. All pieces of a log table have
ordinal 0.

The time that planning takes grows with the number of buckets and pieces, not faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import OLDER_TABLE_REMEDY
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket
from fluss_tiering.spark.round.lost_log import (
    LostLog,
    begins_at_log_start,
    lost_error,
    lost_logs,
    no_snapshot_error,
)

MIN_PIECE_BYTES: Final = 16 << 20
"""A smaller piece or task costs more than its parallelism saves."""
_MAX_CHANGE_PIECES: Final = 16
"""The greatest number of log pieces of one bucket of a primary-key table. A task can reduce a piece of any size, and
each piece becomes a lake snapshot whose delete file applies to all files before it: more would slow readers down."""


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """A key range [from_key, to_key) of a KV snapshot.

    Attributes:
        from_key: The first key of the range; None for the first key of the snapshot.
        to_key: The end of the range, which is not part of it; None for the end of the snapshot.
        size_bytes: The approximate size, by which pieces are spread over tasks and waves.
        partition_values: The values of the bucket's partition.
        deletes: Whether the lake may hold rows that rows of the snapshot replace.
    """

    snapshot: KvSnapshot
    from_key: bytes | None = None
    to_key: bytes | None = None
    size_bytes: float = field(default=0.0, compare=False)
    partition_values: tuple[str, ...] = ()
    deletes: bool = False

    @property
    def bucket(self) -> TableBucket:
        """The bucket of the rows."""
        return self.snapshot.bucket

    @property
    def ordinal(self) -> int:
        """The ordinal of snapshots, which come first."""
        return 0


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A range [start_offset, end_offset) of a bucket's log.

    Attributes:
        start_offset: The first offset of the range.
        end_offset: The end of the range, which is not part of it.
        ordinal: The position of the piece among those of its bucket (see the module).
        deletes: Whether the lake may hold rows that changes of the piece replace.
        size_bytes: The approximate size, by which pieces are spread over tasks and waves.
        partition_values: The values of the bucket's partition.
    """

    bucket: TableBucket
    start_offset: int
    end_offset: int
    ordinal: int = 0
    deletes: bool = False
    size_bytes: float = field(default=0.0, compare=False)
    partition_values: tuple[str, ...] = ()


Piece = SnapshotPiece | LogPiece


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """How large pieces and rounds may be.

    Attributes:
        parallelism: How many tasks run at the same time. Ranges that can be read in any order are split so that all
            tasks have work.
        append_piece_bytes: The size of a log table's or a snapshot's piece. These are streamed; the limit bounds what
            a retry repeats.
        change_piece_bytes: The size of a log piece of a primary-key table, as long as its bucket needs only a few of
            them. A task reduces a piece to the last change of each key.
        round_bytes: How much of the log one round reads; None for all of it. Snapshots are always read as a whole.
        wave_bytes: How much each task reads in one wave, after which the round looks at the clock.
    """

    parallelism: int = 1
    append_piece_bytes: int = 256 << 20
    change_piece_bytes: int = 64 << 20
    round_bytes: int | None = None
    wave_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """What a round reads, and what is in the lake after it.

    Attributes:
        pieces: The pieces to read.
        start_offsets: The end offsets by bucket before any log piece is read: what is tiered, and what the snapshots
            hold.
        log_end_offsets: The end offsets after the round, of every bucket that then has something in the lake.
        advances: Whether any offset moves. A range without rows moves offsets, too.
        complete: False if something is left for the next round, which then is due at once.
        partition_values: The values of a partition whose offsets move.
        skipped: The parts of logs that are gone, and that the round was told to skip.
        read_again: The buckets that are read again from a KV snapshot, with the values of their partition. Whatever
            the lake holds of them is removed in the same commit.
    """

    pieces: tuple[Piece, ...]
    start_offsets: Mapping[TableBucket, int]
    log_end_offsets: Mapping[TableBucket, int]
    advances: bool
    complete: bool = True
    partition_values: tuple[str, ...] = ()
    skipped: tuple[LostLog, ...] = ()
    read_again: tuple[tuple[int, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class _Range:
    """What is to be read of one bucket: perhaps a snapshot, then the log from `start` to `end`."""

    info: BucketInfo
    snapshot: KvSnapshot | None
    start: int
    end: int
    tiered: bool
    read_again: bool = False

    @property
    def bytes_per_offset(self) -> float:
        length = self.info.log_end_offset - self.info.log_start_offset
        return self.info.log_size_bytes / length if length > 0 else 0.0

    @property
    def log_bytes(self) -> float:
        return (self.end - self.start) * self.bytes_per_offset

    @property
    def snapshot_bytes(self) -> int:
        return self.snapshot.size_bytes if self.snapshot else 0


def plan_round(
    *,
    has_primary_key: bool,
    tiered: Mapping[TableBucket, int],
    buckets: Sequence[BucketInfo],
    snapshots: Mapping[TableBucket, KvSnapshot],
    limits: PlanLimits,
    replaced: Collection[TableBucket] = (),
    skip_missing_log: bool = False,
) -> RoundPlan:
    """Plan a round.

    Args:
        has_primary_key: Whether the table has a primary key.
        tiered: The log end offsets that are in the lake. A bucket with nothing in the lake is missing or negative. A
            bucket that is not in `buckets` belonged to a partition that was dropped, and is left out from now on.
        buckets: Every bucket of the table, with the end of its log as it is now.
        snapshots: The leased snapshots by bucket. A snapshot is ignored if its bucket has been tiered since.
        limits: How large pieces and rounds may be.
        replaced: The buckets that were never tiered although the lake holds rows for them, because an earlier partition
            had the same values. Their rows replace those of the lake.
        skip_missing_log: Whether to go on if a part of a log was deleted before it was tiered. A log table goes on at
            the start of its log. A bucket of a primary-key table is read again from its KV snapshot.

    Raises:
        FlussTieringError: LOG_OFFSET_OUT_OF_RANGE if the log no longer holds something that is not in the lake yet.
    """
    lost = lost_logs(buckets, tiered, has_primary_key=has_primary_key)
    if lost and not skip_missing_log:
        raise lost_error(lost, has_primary_key=has_primary_key)
    begins = begins_at_log_start(tiered, has_primary_key=has_primary_key)
    skipped = {each.info.bucket for each in lost}
    ranges = [
        _again(info, tiered.get(info.bucket, -1), snapshots.get(info.bucket), has_primary_key=has_primary_key)
        if info.bucket in skipped
        else _range(info, tiered.get(info.bucket, -1), snapshots.get(info.bucket), begins=begins)
        for info in buckets
    ]
    ranges, complete = _within(ranges, limits.round_bytes)
    kept = {each.info.bucket: tiered[each.info.bucket] for each in ranges if each.tiered}
    total = sum(each.snapshot_bytes + each.log_bytes for each in ranges)
    even_share = max(MIN_PIECE_BYTES, math.ceil(total / limits.parallelism))
    limits = replace(limits, append_piece_bytes=min(limits.append_piece_bytes, even_share))
    pieces = tuple(
        piece
        for each in ranges
        for piece in _pieces(each, limits, has_primary_key, replaces=each.info.bucket in replaced)
    )
    starts = {each.info.bucket: each.start for each in ranges if each.tiered or each.start > 0}
    ends = {each.info.bucket: each.end for each in ranges if each.tiered or each.end > 0}
    log_end_offsets = {**kept, **ends}
    moved = [each.info for each in ranges if log_end_offsets.get(each.info.bucket) != kept.get(each.info.bucket)]
    return RoundPlan(
        pieces,
        {**kept, **starts},
        log_end_offsets,
        advances=bool(moved),
        complete=complete,
        partition_values=moved[0].partition_values if moved else (),
        skipped=tuple(lost),
        read_again=tuple((each.info.bucket.bucket, each.info.partition_values) for each in ranges if each.read_again),
    )


def _again(info: BucketInfo, tiered: int, leased: KvSnapshot | None, *, has_primary_key: bool) -> _Range:
    """Return what is read of a bucket of whose log something is missing."""
    if not has_primary_key:
        return _Range(info, None, info.log_start_offset, info.log_end_offset, tiered >= 0)
    if leased is None:
        raise no_snapshot_error(info)
    return replace(_range(info, -1, leased, begins=False), read_again=True)


def _range(info: BucketInfo, tiered: int, leased: KvSnapshot | None, *, begins: bool) -> _Range:
    if tiered >= 0:
        start, snapshot = tiered, None
    elif leased is not None:
        start, snapshot = leased.log_offset, leased
    else:
        start, snapshot = info.log_start_offset if begins else 0, None
    if start < info.log_start_offset:
        raise no_snapshot_error(info)
    if start > info.log_end_offset:
        raise FlussTieringError(
            ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
            f"{info.bucket}: the lake holds its log up to offset {start}, but it ends at {info.log_end_offset}; "
            f"the storage has lost data, or was restored from an older backup than the lake: {OLDER_TABLE_REMEDY}",
        )
    return _Range(info, snapshot, start, info.log_end_offset, tiered >= 0)


def _within(ranges: Sequence[_Range], round_bytes: int | None) -> tuple[list[_Range], bool]:
    """Return the ranges, shortened by the same share so that the round reads at most its bytes."""
    total = sum(each.log_bytes for each in ranges)
    if round_bytes is None or total == 0:
        return list(ranges), True
    snapshot_bytes = sum(each.snapshot_bytes for each in ranges)
    share = max(0, round_bytes - snapshot_bytes) / total
    if share >= 1:
        return list(ranges), True
    # Without a snapshot to read, a round must make progress, however small its limit is.
    least = 0 if snapshot_bytes else 1
    return [
        replace(each, end=min(each.end, each.start + max(least, int((each.end - each.start) * share))))
        for each in ranges
    ], False


def _pieces(each: _Range, limits: PlanLimits, has_primary_key: bool, *, replaces: bool) -> Iterator[Piece]:
    append_bytes = limits.append_piece_bytes
    # A negative number means that the number of rows is not known.
    has_rows = each.snapshot is not None and each.snapshot.row_count != 0
    if each.snapshot is not None and has_rows:
        yield from _snapshot_pieces(each.snapshot, append_bytes, each.info.partition_values, replaces)
    if not has_primary_key:
        for start, end in _cut(each, append_bytes):
            yield LogPiece(
                each.info.bucket,
                start,
                end,
                size_bytes=(end - start) * each.bytes_per_offset,
                partition_values=each.info.partition_values,
            )
        return
    first = 1 if has_rows else 0
    change_bytes = max(limits.change_piece_bytes, math.ceil(each.log_bytes / _MAX_CHANGE_PIECES))
    for number, (start, end) in enumerate(_cut(each, change_bytes)):
        yield LogPiece(
            each.info.bucket,
            start,
            end,
            ordinal=first + number,
            deletes=each.tiered or has_rows or number > 0 or replaces,
            size_bytes=(end - start) * each.bytes_per_offset,
            partition_values=each.info.partition_values,
        )


def _snapshot_pieces(
    snapshot: KvSnapshot, piece_bytes: int, partition_values: tuple[str, ...], deletes: bool
) -> Iterator[SnapshotPiece]:
    keys = snapshot.split_keys
    count = min(max(1, math.ceil(snapshot.size_bytes / piece_bytes)), len(keys) + 1)
    # count - 1 of the keys at which the snapshot may be split, evenly spread.
    cuts = [keys[(number * (len(keys) + 1)) // count - 1] for number in range(1, count)]
    bounds: list[bytes | None] = [None, *cuts, None]
    for from_key, to_key in itertools.pairwise(bounds):
        yield SnapshotPiece(snapshot, from_key, to_key, snapshot.size_bytes / count, partition_values, deletes)


def _cut(each: _Range, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the log range in pieces of about the same length, each with about `piece_bytes` at most."""
    length = each.end - each.start
    if length <= 0:
        return
    count = min(length, max(1, math.ceil(each.log_bytes / piece_bytes)))
    for number in range(count):
        yield each.start + length * number // count, each.start + length * (number + 1) // count
