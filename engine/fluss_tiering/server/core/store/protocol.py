"""The interface of a store, as the managers use it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import KvSnapshotLease, TieringRound, TieringStatus
from fluss_tiering.server.core.store.records import CommittedLakeSnapshot, LeaseAttempt, RoundsPage


class StoreTransaction(Protocol):
    """Writes that become durable together, or not at all."""

    def put_lease(self, lease: KvSnapshotLease) -> None:
        """Insert or replace a lease, and pin its snapshots. What it pinned in other buckets stays."""
        ...

    def delete_leased_snapshots(self, lease_id: str, buckets: Iterable[TableBucket]) -> None:
        """Let a lease pin these buckets no longer."""
        ...

    def put_lease_expirations(self, expiration_times: Mapping[str, int]) -> None:
        """Set when existing leases expire: lease id -> milliseconds since the epoch."""
        ...

    def delete_lease(self, lease_id: str) -> None:
        """Delete a lease, even a damaged one."""
        ...

    def put_attempt(self, attempt: LeaseAttempt) -> None:
        """Insert or replace the newest attempt under a lease id."""
        ...

    def delete_attempts(self, lease_ids: Iterable[str]) -> None:
        """Delete the attempts under these lease ids."""
        ...

    def put_attempt_token(self, attempt_token: int) -> None:
        """Set the newest token that was given out."""
        ...

    def put_coordinator_epoch(self, coordinator_epoch: int) -> None:
        """Set the coordinator epoch of the server that is active now."""
        ...

    def put_statuses(self, statuses: Sequence[TieringStatus]) -> None:
        """Insert or replace the statuses of tables."""
        ...

    def put_rounds(self, rounds: Sequence[TieringRound]) -> None:
        """Insert or replace rounds."""
        ...

    def prune_rounds(self, table_ids: Collection[int], keep: int) -> None:
        """Delete the rounds of each table except its newest `keep`."""
        ...

    def put_lake_snapshot(self, committed: CommittedLakeSnapshot) -> None:
        """Add a lake snapshot, as the newest one of its table."""
        ...

    def prune_lake_snapshots(self, table_id: int, keep: int) -> None:
        """Delete a table's lake snapshots except the newest `keep`."""
        ...

    def delete_table(self, table_id: int) -> None:
        """Delete a table's status and lake snapshots, and its rounds except the newest one of each lease."""
        ...

    def delete_rounds(self, table_ids: Collection[int]) -> None:
        """Delete all rounds of these tables."""
        ...


class TieringStore(Protocol):
    """The durable state of a server.

    Raises:
        FlussTieringError: By every method: STORAGE if the database fails; UNAVAILABLE if it cannot be reached;
            CORRUPT_DATA if it holds rows that no server wrote; by a transaction: NOT_LEADER_OR_FOLLOWER if another
            server has become the active one.
    """

    def transaction(self) -> AbstractContextManager[StoreTransaction]:
        """Open a transaction. It is durable when the block ends, and undone if the block or the commit raises."""
        ...

    def leases(self) -> Sequence[KvSnapshotLease]:
        """Return all leases except damaged ones."""
        ...

    def damaged_leases(self) -> Mapping[str, str]:
        """Return the leases that cannot be loaded: lease id -> what is wrong with it."""
        ...

    def attempts(self) -> Sequence[LeaseAttempt]:
        """Return the newest attempt of every lease id."""
        ...

    def attempt(self, lease_id: str) -> LeaseAttempt | None:
        """Return the newest attempt of a lease id; None if none is stored."""
        ...

    def attempt_token(self) -> int:
        """Return the newest token that was given out; 0 if none was."""
        ...

    def coordinator_epoch(self) -> int:
        """Return the coordinator epoch of the server that was active last; 0 if none was."""
        ...

    def statuses(self) -> Sequence[TieringStatus]:
        """Return the statuses of all tables."""
        ...

    def running_rounds(self) -> Sequence[TieringRound]:
        """Return the rounds that have not ended."""
        ...

    def round(self, table_id: int, tiering_epoch: int) -> TieringRound | None:
        """Return a round; None if it is not stored."""
        ...

    def rounds_page(
        self, *, path: TablePath | None, lease_id: str | None, limit: int, after: int | None, max_tables: int
    ) -> RoundsPage:
        """Return the newest `limit` rounds of each table that matches, of some tables in the order of their ids.

        Rounds of dropped tables are found by their lease only.

        Args:
            path: The path of the tables; None for any.
            lease_id: The lease of the rounds; None for any.
            limit: The largest number of rounds of a table.
            after: The id that the ids of the tables must be greater than; None to begin with the first table.
            max_tables: The largest number of tables to look at.
        """
        ...

    def dropped_tables(self) -> Mapping[int, int]:
        """Return the tables that have rounds but no status, each with the newest end of a round, in milliseconds."""
        ...

    def lake_snapshots(self) -> Sequence[CommittedLakeSnapshot]:
        """Return the newest lake snapshot of each table."""
        ...

    def lake_snapshot(self, table_id: int, snapshot_id: int) -> CommittedLakeSnapshot | None:
        """Return a lake snapshot; None if it is not stored."""
        ...

    def lake_offsets_paths(self, table_id: int) -> Sequence[str]:
        """Return the paths of the offsets files that the stored lake snapshots of a table name."""
        ...

    def close(self) -> None:
        """Close the database."""
        ...
