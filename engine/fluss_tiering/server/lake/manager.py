"""The known lake snapshots: which part of each table's log is in the lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import BucketInfo, TableBucket, TableInfo
from fluss_tiering.server.store.protocol import TieringStore
from fluss_tiering.server.store.records import CommittedLakeSnapshot

_KEPT_SNAPSHOTS: Final = 100
"""The number of lake snapshots that are kept of each table. A driver that recovers asks for one of the last."""
_KEPT_OFFSETS: Final = 100_000
"""The number of offsets that are kept of all lake snapshots of a table, but those of at least two lake snapshots."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommitRegistration:
    """A lake snapshot that a driver committed to the lake and registers at the server.

    Attributes:
        table: The table.
        tiering_epoch: The epoch of the round.
        snapshot_id: The id of the snapshot in the lake.
        log_end_offsets: The offset up to which each bucket is in the lake. Buckets that the snapshot does not change
            may be left out.
        commit_id: The id of the commit.
        offsets_path: The path of the offsets file, as the summary of the snapshot names it.
    """

    table: TableInfo
    tiering_epoch: int
    snapshot_id: int
    log_end_offsets: Mapping[TableBucket, int]
    commit_id: str
    offsets_path: str


class LakeSnapshotManager:
    """The newest lake snapshot of each table.

    It is used in the control thread only. Every change is written to the store before it is made in memory. It does not
    check epochs: `LakeTieringManager.require_round` says who may prepare and commit.

    Args:
        clock: The clock of the server.
        store: The persisted lake snapshots.
    """

    def __init__(self, clock: Clock, store: TieringStore) -> None:
        self._clock = clock
        self._store = store
        self._newest = {each.snapshot.table_id: each.snapshot for each in store.lake_snapshots()}

    def newest(self, table_id: int) -> LakeSnapshot | None:
        """Return the newest lake snapshot of a table, or None."""
        return self._newest.get(table_id)

    def learn(self, snapshot: LakeSnapshot) -> None:
        """Take over the newest lake snapshot that a cluster knows, because others may tier its tables too."""
        self._newest[snapshot.table_id] = snapshot

    def snapshot(self, table_id: int, snapshot_id: int) -> LakeSnapshot | None:
        """Return the lake snapshot of an id, or None."""
        committed = self._store.lake_snapshot(table_id, snapshot_id)
        return committed.snapshot if committed else None

    def prepare(
        self,
        table: TableInfo,
        buckets: Iterable[BucketInfo],
        log_end_offsets: Mapping[TableBucket, int],
        *,
        ignore_previous: bool,
    ) -> dict[TableBucket, int]:
        """Return the content of the next lake snapshot's offsets file: each bucket, -1 for one that is not tiered yet.

        Buckets that are not given keep the offset of the newest lake snapshot, as in Fluss. Buckets of partitions that
        were dropped are left out: nothing of them is left to tier.

        Args:
            table: The table.
            buckets: The buckets of the table as they are now.
            log_end_offsets: The offset up to which each bucket will be in the lake.
            ignore_previous: Whether to leave out the offsets of the newest lake snapshot.

        Raises:
            FlussTieringError: INVALID_REQUEST if a bucket is unknown or an offset goes backwards;
                LOG_OFFSET_OUT_OF_RANGE if an offset is past the end of the log.
        """
        buckets = list(buckets)
        previous = {} if ignore_previous else self._offsets(table.table_id)
        merged = _merged(table, buckets, previous, log_end_offsets)
        return {info.bucket: merged.get(info.bucket, -1) for info in buckets}

    def commit(self, commit: CommitRegistration, buckets: Iterable[BucketInfo]) -> None:
        """Make a lake snapshot the newest one. A snapshot that is known with the same offsets stays as it is.

        Raises:
            FlussTieringError: The errors of `prepare`; INVALID_REQUEST if the snapshot is known with other offsets.
        """
        known = self.snapshot(commit.table.table_id, commit.snapshot_id)
        if known is not None:
            require_same_offsets(commit, known)
            return
        self.record(commit, self.merged(commit, buckets))

    def merged(self, commit: CommitRegistration, buckets: Iterable[BucketInfo]) -> LakeSnapshot:
        """Return the lake snapshot with the offsets of all buckets. Raises the errors of `prepare`."""
        table = commit.table
        offsets = _merged(table, buckets, self._offsets(table.table_id), commit.log_end_offsets)
        return LakeSnapshot(table.table_id, commit.snapshot_id, offsets)

    def record(self, commit: CommitRegistration, snapshot: LakeSnapshot) -> None:
        """Store a snapshot that `merged` returned as the newest lake snapshot."""
        table, snapshot_id = commit.table, commit.snapshot_id
        with self._store.transaction() as transaction:
            transaction.put_lake_snapshot(
                CommittedLakeSnapshot(
                    snapshot, commit.tiering_epoch, commit.commit_id, commit.offsets_path, self._clock.now_ms()
                )
            )
            transaction.prune_lake_snapshots(table.table_id, _kept(len(snapshot.log_end_offsets)))
        self._newest[table.table_id] = snapshot
        logger.info(
            "lake snapshot committed",
            table=str(table.path),
            epoch=commit.tiering_epoch,
            snapshot_id=snapshot_id,
            commit_id=commit.commit_id,
        )

    def offsets_paths(self, table_id: int) -> Sequence[str]:
        """Return the paths of the offsets files that the known lake snapshots of a table name."""
        return self._store.lake_offsets_paths(table_id)

    def forget(self, table_id: int) -> None:
        """Forget a dropped table. The store has deleted its snapshots already."""
        self._newest.pop(table_id, None)

    def _offsets(self, table_id: int) -> Mapping[TableBucket, int]:
        newest = self._newest.get(table_id)
        return newest.log_end_offsets if newest else {}


def _kept(buckets: int) -> int:
    return max(2, min(_KEPT_SNAPSHOTS, _KEPT_OFFSETS // max(1, buckets)))


def require_same_offsets(commit: CommitRegistration, known: LakeSnapshot) -> None:
    """Raise INVALID_REQUEST unless a known snapshot has the offsets of a commit.

    The known snapshot lacks the partitions that were dropped in the meantime.
    """
    differs = [
        bucket
        for bucket, offset in commit.log_end_offsets.items()
        if known.log_end_offsets.get(bucket, None if bucket.partition_id is None else offset) != offset
    ]
    if differs:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"lake snapshot {commit.snapshot_id} of table {commit.table.path} is known with other offsets: "
            "commit it with the offsets that its own summary names",
        )


def _merged(
    table: TableInfo,
    buckets: Iterable[BucketInfo],
    previous: Mapping[TableBucket, int],
    log_end_offsets: Mapping[TableBucket, int],
) -> dict[TableBucket, int]:
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
