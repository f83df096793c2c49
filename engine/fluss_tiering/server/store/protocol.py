"""What the managers ask of a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    def delete_lease(self, lease_id: str) -> None:
        """Deletes a lease."""
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

    def put_status(self, status: TieringStatus) -> None:
        """Inserts or replaces a table's status."""
        ...

    def put_round(self, tiering_round: TieringRound) -> None:
        """Inserts or replaces a round."""
        ...

    def prune_rounds(self, table_id: int, keep: int) -> None:
        """Deletes a table's rounds but for the newest `keep`."""
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
    """The durable state; every method raises FlussTieringError STORAGE when the database fails."""

    def transaction(self) -> AbstractContextManager[StoreTransaction]:
        """A transaction that is durable when the block ends, and undone when the block or the commit raises."""
        ...

    def leases(self) -> Sequence[KvSnapshotLease]:
        """All leases."""
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
