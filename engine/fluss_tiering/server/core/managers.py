"""The managers together with the storage: steps that involve several of them, in the control thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import OLDER_TABLE_REMEDY, LakeSnapshot
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import AcquiredLease
from fluss_tiering.server.core.lake.backlogs import Backlogs
from fluss_tiering.server.core.lake.manager import LakeSnapshotManager
from fluss_tiering.server.core.lake.merging import CommitRegistration, MergedCommit
from fluss_tiering.server.core.leases.attempts import LeaseAttempts
from fluss_tiering.server.core.leases.book import Snapshot
from fluss_tiering.server.core.leases.checks import LeaseLimits
from fluss_tiering.server.core.leases.manager import KvSnapshotLeaseManager
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.tiering.manager import LakeTieringManager
from fluss_tiering.server.core.tiering.policy import TieringPolicy
from fluss_tiering.storage.protocol import TableStorage

_NOT_A_REFUSAL: Final = frozenset({ErrorCode.STORAGE, ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""Errors after which the same commit may be tried again, because the store did not take it."""

logger = structlog.get_logger(__name__)


class Managers:
    """The managers, loaded from the store before anything else runs, so that every lease pins its snapshots again.

    Args:
        store: The persisted state of the server.
        policy: The rules of tiering.
        lease_limits: The limits of leases; None for the default ones.

    Attributes:
        leases: The leases of KV snapshots.
        tiering: The tables that are tiered.
        lake: The known lake snapshots.
        backlogs: The log records of each table that are not in the lake.
    """

    def __init__(
        self,
        storage: TableStorage,
        store: SqlTieringStore,
        clock: Clock,
        policy: TieringPolicy,
        lease_limits: LeaseLimits | None = None,
    ) -> None:
        attempts = LeaseAttempts(store, clock.now_ms())
        self._storage = storage
        self._dropped: dict[int, TablePath] = {}
        self.leases = KvSnapshotLeaseManager(clock, store, attempts, lease_limits)
        self.backlogs = Backlogs(clock, self._newest_lake_snapshot)
        if policy.due_by_freshness:
            self.backlogs.follow(table.table_id for table in storage.tables())
        self.tiering = LakeTieringManager(clock, store, attempts, policy, self.backlogs)
        # What cannot be used is looked for last: a table may become usable in between, but none may be missed.
        tables = storage.tables()
        listed = {table.path for table in tables}
        unusable = storage.unusable_tables([each.path for each in store.statuses() if each.path not in listed])
        self.tiering.load(tables, unusable)
        self.lake = LakeSnapshotManager(clock, store)
        present = {table.table_id for table in tables}
        leased = set(self.leases.pins.table_ids)
        if not unusable:
            # The id of a table that cannot be used is not known, and its snapshots must stay pinned.
            self.leases.release_tables(frozenset(leased - present))

    def record_lease(
        self, lease_id: str, duration_ms: int, available: Mapping[TableBucket, int], unavailable: dict[TableBucket, int]
    ) -> AcquiredLease:
        """Make or extend a lease: see `KvSnapshotLeaseManager.acquire`.

        Snapshots of a table that was dropped after it was looked for are added to the unavailable ones.
        """
        present = self._of_present_tables(available)
        unavailable |= {bucket: id_ for bucket, id_ in available.items() if bucket not in present}
        return self.leases.acquire(lease_id, duration_ms, present, unavailable)

    def claim_for_collection(self, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
        """Claim the KV snapshots that no lease pins, so that they can be deleted: see `PinnedSnapshots`.

        Raises:
            FlussTieringError: CORRUPT_DATA if a lease could not be loaded, because it may pin any snapshot.
        """
        stopped = self.leases.collection_stopped_reason
        if stopped is not None:
            raise FlussTieringError(ErrorCode.CORRUPT_DATA, stopped)
        return self.leases.pins.claim_for_collection(snapshots)

    def forget_table(self, table_id: int, path: TablePath) -> None:
        """Delete the state of a dropped table, and release its buckets.

        If this cannot be recorded, the table is withheld: nobody sees it or is given it, and `forget_dropped` tries
        again. After a restart the table is forgotten too, because the storage does not have it.
        """
        if self.tiering.tables.get(table_id) is not None:
            self.tiering.totals.count_lost(path, self.backlogs.untiered(table_id))
        try:
            self.tiering.remove(table_id)
            self.lake.forget(table_id)
            self.backlogs.forget(table_id)
            self.leases.release_tables(frozenset({table_id}))
        except FlussTieringError:
            self._dropped[table_id] = path
            self.tiering.withhold(table_id)
            raise
        self._dropped.pop(table_id, None)

    def forget_dropped(self, path: TablePath | None = None) -> bool:
        """Try again to forget dropped tables whose end could not be recorded.

        Args:
            path: The path that the tables had; None for all of them.

        Returns:
            Whether there was such a table.
        """
        again = [(table_id, had) for table_id, had in self._dropped.items() if path in (None, had)]
        for table_id, had in again:
            self.forget_table(table_id, had)
        return bool(again)

    def newest_of_round(self, table_id: int, tiering_epoch: int) -> LakeSnapshot | None:
        """Return the newest lake snapshot of a table, with whose offsets the running round merges its own.

        Raises:
            FlussTieringError: See `LakeTieringManager.require_round`.
        """
        self.tiering.require_round(table_id, tiering_epoch)
        return self.lake.newest(table_id)

    def commit_lake_snapshot(self, merged: MergedCommit) -> bool:
        """Register the running round's lake snapshot: see `LakeSnapshotManager.commit`.

        Raises:
            FlussTieringError: See `LakeTieringManager.require_round`.
        """
        self.tiering.require_round(merged.snapshot.table_id, merged.commit.tiering_epoch)
        return self.lake.commit(merged)

    def _newest_lake_snapshot(self, table_id: int) -> LakeSnapshot | None:
        return self.lake.newest(table_id)

    def _of_present_tables(self, snapshots: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
        dropped = {table_id for table_id in {bucket.table_id for bucket in snapshots} if not self._has(table_id)}
        return {bucket: id_ for bucket, id_ in snapshots.items() if bucket.table_id not in dropped}

    def _has(self, table_id: int) -> bool:
        try:
            self._storage.table_by_id(table_id)
        except FlussTieringError as error:
            if error.code is not ErrorCode.TABLE_NOT_EXIST:
                raise
            return False
        return True

    def note_refused_commit(self, commit: CommitRegistration, error: FlussTieringError) -> None:
        """Keep with the table why a commit of its running round was refused, unless the error was no refusal."""
        if error.code not in _NOT_A_REFUSAL:
            self.tiering.note_refused_commit(
                commit.table.table_id, commit.tiering_epoch, f"commit of lake snapshot refused: {error.message}"
            )


def require_leasable(
    storage: TableStorage, lease_id: str, snapshots: Mapping[TableBucket, int], *, allow_empty: bool
) -> None:
    """Check the tables of a lease. Raises the errors of `LeaseService.acquire`."""
    if not snapshots and not allow_empty:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"lease {lease_id} names no snapshot: name at least one, or set allow_empty to only begin an attempt",
        )
    for table_id in {bucket.table_id for bucket in snapshots}:
        table = storage.table_by_id(table_id)
        if not table.has_primary_key:
            raise FlussTieringError(
                ErrorCode.TABLE_WITHOUT_PRIMARY_KEY,
                f"table {table.path} has no primary key, and so no KV snapshots to lease",
            )


def no_offsets_file(commit: CommitRegistration) -> FlussTieringError:
    """Return the error for a commit whose offsets file does not exist."""
    return FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"lake snapshot {commit.snapshot_id} of table {commit.table.path}: its offsets file "
        f"{commit.offsets_path!r} does not exist: expected the path that its summary names. If that is the one, the "
        f"table was restored from an older backup than its lake: {OLDER_TABLE_REMEDY}",
    )
