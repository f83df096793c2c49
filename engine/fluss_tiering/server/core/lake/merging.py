"""What a lake snapshot's offsets become: those that a round names, merged with those of the newest lake snapshot.

A table may have a hundred thousand buckets, so all of this runs outside of the control thread, on values that do not
change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import BucketInfo, TableBucket, TableInfo
from fluss_tiering.server.core.store.records import PackedOffsets


@dataclass(frozen=True, slots=True)
class CommitRegistration:
    """A lake snapshot that a driver committed to the lake and registers at the server.

    Attributes:
        tiering_epoch: The epoch of the round.
        snapshot_id: The id of the snapshot in the lake.
        log_end_offsets: The offset up to which each bucket is in the lake. Buckets that the snapshot does not change
            may be left out.
        offsets_path: The path of the offsets file, as the summary of the snapshot names it.
    """

    table: TableInfo
    tiering_epoch: int
    snapshot_id: int
    log_end_offsets: Mapping[TableBucket, int]
    commit_id: str
    offsets_path: str


@dataclass(frozen=True, slots=True)
class MergedCommit:
    """A commit that can be recorded in one short turn.

    Attributes:
        base: The newest lake snapshot with which the offsets were merged; None if there was none.
        snapshot: The lake snapshot with the offsets of all buckets.
        packed: The same offsets as they are stored.
    """

    commit: CommitRegistration
    base: LakeSnapshot | None
    snapshot: LakeSnapshot
    packed: PackedOffsets


def prepared_offsets(
    table: TableInfo,
    buckets: Sequence[BucketInfo],
    previous: LakeSnapshot | None,
    log_end_offsets: Mapping[TableBucket, int],
) -> dict[TableBucket, int]:
    """Return the content of the next lake snapshot's offsets file: each bucket, -1 for one that is not tiered yet.

    Buckets that are not given keep the offset of the newest lake snapshot, as in Fluss. Buckets of partitions that
    were dropped are left out: nothing of them is left to tier.

    Args:
        buckets: The buckets of the table as they are now.
        previous: The newest lake snapshot; None if there is none, or if its offsets are to be left out.
        log_end_offsets: The offset up to which each bucket will be in the lake.

    Raises:
        FlussTieringError: INVALID_REQUEST if a bucket is unknown or an offset goes backwards;
            LOG_OFFSET_OUT_OF_RANGE if an offset is past the end of the log.
    """
    merged = _merged(table, buckets, previous, log_end_offsets)
    return {info.bucket: merged.get(info.bucket, -1) for info in buckets}


def merge_commit(
    commit: CommitRegistration, buckets: Sequence[BucketInfo], newest: LakeSnapshot | None
) -> MergedCommit:
    """Merge a commit with the newest lake snapshot. Raises the errors of `prepared_offsets`."""
    offsets = _merged(commit.table, buckets, newest, commit.log_end_offsets)
    return pack_commit(commit, newest, LakeSnapshot(commit.table.table_id, commit.snapshot_id, offsets))


def pack_commit(commit: CommitRegistration, base: LakeSnapshot | None, snapshot: LakeSnapshot) -> MergedCommit:
    """Return a commit whose offsets of all buckets are known, ready to be recorded."""
    return MergedCommit(commit, base, snapshot, PackedOffsets.of(snapshot.log_end_offsets))


def require_same_offsets(commit: CommitRegistration, known: LakeSnapshot) -> None:
    """Raise INVALID_REQUEST unless a known snapshot has the offsets of a commit.

    The known snapshot lacks the partitions that were dropped in the meantime.
    """
    differs = any(
        known.log_end_offsets.get(bucket, None if bucket.partition_id is None else offset) != offset
        for bucket, offset in commit.log_end_offsets.items()
    )
    if differs:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"lake snapshot {commit.snapshot_id} of table {commit.table.path} is known with other offsets: "
            "commit it with the offsets that its own summary names",
        )


def _merged(
    table: TableInfo,
    buckets: Sequence[BucketInfo],
    newest: LakeSnapshot | None,
    log_end_offsets: Mapping[TableBucket, int],
) -> dict[TableBucket, int]:
    previous = newest.log_end_offsets if newest else {}
    log_ends = {info.bucket: info.log_end_offset for info in buckets}
    partitions = {bucket.partition_id for bucket in log_ends}
    for bucket, offset in log_end_offsets.items():
        if bucket.partition_id is not None and bucket.partition_id not in partitions:
            continue  # The partition was dropped after the round was planned.
        if bucket not in log_ends:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"table {table.path} has no {bucket}: its buckets are 0 to {len(log_ends) - 1}",
            )
        # A log without replicas may lose its end. What is in the lake already stays there.
        if offset > log_ends[bucket] and offset != previous.get(bucket):
            raise FlussTieringError(
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
                f"table {table.path}, {bucket}: offset {offset} is past the log's end, {log_ends[bucket]}",
            )
        if offset < previous.get(bucket, -1):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"table {table.path}, {bucket}: offset {offset} is before {previous[bucket]}, up to which it is tiered "
                "already; read the newest lake snapshot and plan again",
            )
    merged = {**previous, **log_end_offsets}
    return {bucket: offset for bucket, offset in merged.items() if bucket.partition_id in partitions}
