"""What the managers ask of a store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from fluss_tiering.model.lease import KvSnapshotLease
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringRound, TieringStatus
from fluss_tiering.server.store.records import CommittedLakeSnapshot, LeaseAttempt


class StoreTransaction(Protocol):
    """Writes that become durable together, or not at all."""

    def put_lease(self, lease: KvSnapshotLease) -> None:
        """Inserts or replaces a lease with all it pins."""
        ...

    def put_lease_expirations(self, expiration_times: Mapping[str, int]) -> None:
        """Sets when leases that exist expire: lease id -> time."""
        ...

    def delete_lease(self, lease_id: str) -> None:
        """Deletes a lease, a damaged one too."""
        ...

    def put_attempt(self, attempt: LeaseAttempt) -> None:
        """Inserts or replaces the newest attempt under a lease id."""
        ...

    def delete_attempts(self, lease_ids: Iterable[str]) -> None:
        """Forgets the attempts under lease ids."""
        ...

    def put_attempt_token(self, attempt_token: int) -> None:
        """Sets the newest token that was given out."""
        ...

    def put_statuses(self, statuses: Sequence[TieringStatus]) -> None:
        """Inserts or replaces the statuses of tables."""
        ...

    def put_rounds(self, rounds: Sequence[TieringRound]) -> None:
        """Inserts or replaces rounds."""
        ...

    def prune_rounds(self, table_ids: Collection[int], keep: int) -> None:
        """Deletes the rounds of each of the tables but for its newest `keep`."""
        ...

    def put_lake_snapshot(self, committed: CommittedLakeSnapshot) -> None:
        """Appends a lake snapshot to its table's."""
        ...

    def prune_lake_snapshots(self, table_id: int, keep: int) -> None:
        """Deletes a table's lake snapshots but for the newest `keep`."""
        ...

    def delete_table(self, table_id: int) -> None:
        """Deletes a table's status, rounds and lake snapshots."""
        ...

    def delete_rounds_of_dropped_tables(self, before: int) -> None:
        """Deletes rounds that ended before then and whose table has no status any more."""
        ...


class TieringStore(Protocol):
    """The durable state.

    Every method raises FlussTieringError: STORAGE when the database fails, UNAVAILABLE when it cannot be reached,
    CORRUPT_DATA for rows that no server wrote; a transaction NOT_LEADER_OR_FOLLOWER when another server took over.
    """

    def transaction(self) -> AbstractContextManager[StoreTransaction]:
        """A transaction that is durable when the block ends, and undone when the block or the commit raises."""
        ...

    def leases(self) -> Sequence[KvSnapshotLease]:
        """All leases but for damaged ones."""
        ...

    def damaged_leases(self) -> Mapping[str, str]:
        """Leases that cannot be loaded: lease id -> what is wrong with it."""
        ...

    def attempts(self) -> Sequence[LeaseAttempt]:
        """The newest attempt of every lease id."""
        ...

    def attempt_token(self) -> int:
        """The newest token that was given out; 0 before the first."""
        ...

    def statuses(self) -> Sequence[TieringStatus]:
        """All tables' statuses."""
        ...

    def running_rounds(self) -> Sequence[TieringRound]:
        """The rounds that have not ended."""
        ...

    def round(self, table_id: int, tiering_epoch: int) -> TieringRound | None:
        """A round by its name."""
        ...

    def rounds(self, *, path: TablePath | None, lease_id: str | None, limit: int) -> Sequence[TieringRound]:
        """The newest `limit` rounds of each table that fits, by table path, newest first."""
        ...

    def lake_snapshots(self) -> Sequence[CommittedLakeSnapshot]:
        """The newest lake snapshot of each table."""
        ...

    def lake_snapshot(self, table_id: int, snapshot_id: int) -> CommittedLakeSnapshot | None:
        """A lake snapshot by its id."""
        ...

    def close(self) -> None:
        """Closes the database."""
        ...
