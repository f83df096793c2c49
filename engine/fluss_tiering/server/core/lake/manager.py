"""The known lake snapshots: which part of each table's log is in the lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.server.core.lake.merging import MergedCommit
from fluss_tiering.server.core.store.records import CommittedLakeSnapshot
from fluss_tiering.server.core.store.store import SqlTieringStore

_KEPT_SNAPSHOTS: Final = 100
"""The number of lake snapshots that are kept of each table. A driver that recovers asks for one of the last."""
_KEPT_OFFSETS: Final = 100_000
"""The number of offsets that are kept of all lake snapshots of a table, but those of at least two lake snapshots."""

logger = structlog.get_logger(__name__)


class LakeSnapshotManager:
    """The newest lake snapshot of each table.

    It is used in the control thread only, and no call looks at each bucket: `lake.merging` does that in other threads.
    Every change is written to the store before it is made in memory. It does not check epochs:
    `LakeTieringManager.require_round` says who may prepare and commit.
    """

    def __init__(self, clock: Clock, store: SqlTieringStore) -> None:
        self._clock = clock
        self._store = store
        self._newest = {each.table_id: each.unpack() for each in store.lake_snapshots()}

    def newest(self, table_id: int) -> LakeSnapshot | None:
        """Return the newest lake snapshot of a table, or None."""
        return self._newest.get(table_id)

    def learn(self, snapshot: LakeSnapshot) -> None:
        """Take over the newest lake snapshot that a cluster knows, because others may tier its tables too."""
        self._newest[snapshot.table_id] = snapshot

    def known(self, table_id: int, snapshot_id: int) -> CommittedLakeSnapshot | None:
        """Return the lake snapshot of an id, or None. The caller unpacks its offsets in another thread."""
        return self._store.lake_snapshot(table_id, snapshot_id)

    def commit(self, merged: MergedCommit) -> bool:
        """Make a lake snapshot the newest one, unless another became the newest one after the commit was merged.

        Returns:
            Whether it was done; if not, the caller merges the commit again.
        """
        if self._newest.get(merged.snapshot.table_id) is not merged.base:
            return False
        self.record(merged)
        return True

    def record(self, merged: MergedCommit) -> None:
        """Make a lake snapshot the newest one, whatever it was merged with."""
        commit, snapshot = merged.commit, merged.snapshot
        with self._store.transaction() as transaction:
            transaction.put_lake_snapshot(
                CommittedLakeSnapshot(
                    table_id=snapshot.table_id,
                    snapshot_id=snapshot.snapshot_id,
                    offsets=merged.packed,
                    tiering_epoch=commit.tiering_epoch,
                    commit_id=commit.commit_id,
                    offsets_path=commit.offsets_path,
                    committed_time=self._clock.now_ms(),
                )
            )
            transaction.prune_lake_snapshots(snapshot.table_id, _kept(len(snapshot.log_end_offsets)))
        self._newest[snapshot.table_id] = snapshot
        logger.info(
            "lake snapshot committed",
            table=str(commit.table.path),
            epoch=commit.tiering_epoch,
            snapshot_id=snapshot.snapshot_id,
            commit_id=commit.commit_id,
        )

    def offsets_paths(self, table_id: int) -> Sequence[str]:
        """Return the paths of the offsets files that the known lake snapshots of a table name."""
        return self._store.lake_offsets_paths(table_id)

    def forget(self, table_id: int) -> None:
        """Forget a dropped table. The store has deleted its snapshots already."""
        self._newest.pop(table_id, None)


def _kept(buckets: int) -> int:
    return max(2, min(_KEPT_SNAPSHOTS, _KEPT_OFFSETS // max(1, buckets)))
