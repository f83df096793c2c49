"""The lake snapshots that are known: what of each table's log is in the lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
"""Of each table; a driver that recovers asks for one of the last."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommitRegistration:
    """What a driver that committed to the lake makes known.

    Attributes:
        log_end_offsets: of the lake snapshot itself; buckets that it does not touch may be left out.
        offsets_path: the offsets file that its summary names.
    """

    table: TableInfo
    tiering_epoch: int
    snapshot_id: int
    log_end_offsets: Mapping[TableBucket, int]
    commit_id: str
    offsets_path: str


class LakeSnapshotManager:
    """The newest lake snapshot of each table. Used in one thread of control; a change is durable before memory follows.

    It knows no epochs: who may prepare and commit is for `LakeTieringManager.require_round` to say.
    """

    def __init__(self, clock: Clock, store: TieringStore) -> None:
        self._clock = clock
        self._store = store
        self._newest = {each.snapshot.table_id: each.snapshot for each in store.lake_snapshots()}

    def newest(self, table_id: int) -> LakeSnapshot | None:
        """The newest lake snapshot of the table, or None."""
        return self._newest.get(table_id)

    def learn(self, snapshot: LakeSnapshot) -> None:
        """Takes over what a cluster says of a table's newest lake snapshot: others tier into its tables too."""
        self._newest[snapshot.table_id] = snapshot

    def snapshot(self, table_id: int, snapshot_id: int) -> LakeSnapshot | None:
        """A lake snapshot by its id, or None."""
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
        """What the offsets file of the next lake snapshot holds: every bucket, -1 for one of which nothing is tiered.

        Buckets that are not given keep the offset of the newest lake snapshot, as in Fluss. Those of partitions that
        were dropped since the round was planned stay: their rows will be in the lake, and a later partition of the
        same values replaces them only where the lake is known to hold them.

        Raises:
            FlussTieringError: INVALID_REQUEST for an unknown bucket or an offset that goes backwards,
                LOG_OFFSET_OUT_OF_RANGE for one past the log's end.
        """
        buckets = list(buckets)
        previous = {} if ignore_previous else self._offsets(table.table_id)
        merged = _merged(table, buckets, previous, log_end_offsets)
        return {bucket: merged.get(bucket, -1) for bucket in {info.bucket for info in buckets} | log_end_offsets.keys()}

    def commit(self, commit: CommitRegistration, buckets: Iterable[BucketInfo]) -> None:
        """Makes a lake snapshot the newest one; one that is known with these offsets stays as it is.

        Raises:
            FlussTieringError: as `prepare`, and INVALID_REQUEST for a snapshot that is known with other offsets.
        """
        known = self.snapshot(commit.table.table_id, commit.snapshot_id)
        if known is not None:
            require_same_offsets(commit, known)
            return
        self.record(commit, self.merged(commit, buckets))

    def merged(self, commit: CommitRegistration, buckets: Iterable[BucketInfo]) -> LakeSnapshot:
        """The lake snapshot with the offsets of all buckets. Raises as `prepare`."""
        table = commit.table
        offsets = _merged(table, buckets, self._offsets(table.table_id), commit.log_end_offsets)
        return LakeSnapshot(table.table_id, commit.snapshot_id, offsets)

    def record(self, commit: CommitRegistration, snapshot: LakeSnapshot) -> None:
        """Makes it the newest lake snapshot; what `merged` found in order."""
        table, snapshot_id = commit.table, commit.snapshot_id
        with self._store.transaction() as transaction:
            transaction.put_lake_snapshot(
                CommittedLakeSnapshot(
                    snapshot, commit.tiering_epoch, commit.commit_id, commit.offsets_path, self._clock.now_ms()
                )
            )
            transaction.prune_lake_snapshots(table.table_id, _KEPT_SNAPSHOTS)
        self._newest[table.table_id] = snapshot
        logger.info(
            "lake snapshot committed",
            table=str(table.path),
            epoch=commit.tiering_epoch,
            snapshot_id=snapshot_id,
            commit_id=commit.commit_id,
        )

    def forget(self, table_id: int) -> None:
        """Lets go of a dropped table, whose snapshots the store has forgotten."""
        self._newest.pop(table_id, None)

    def _offsets(self, table_id: int) -> Mapping[TableBucket, int]:
        newest = self._newest.get(table_id)
        return newest.log_end_offsets if newest else {}


def require_same_offsets(commit: CommitRegistration, known: LakeSnapshot) -> None:
    """Raises INVALID_REQUEST unless the snapshot, which is known, has the commit's offsets.

    A partition that was dropped meanwhile is not among what is known.
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
            continue  # dropped since the round was planned: there is nothing left of it to tier
        if bucket not in log_ends:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"table {table.path} has no {bucket}: its buckets are 0 to {len(log_ends) - 1}",
            )
        # A log that lost its end, as one without replicas may, takes back nothing of what is in the lake.
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
    return {**previous, **log_end_offsets}
