"""`TieringStore` over SQLAlchemy: SQLite in a file, or PostgreSQL; synced at each commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import sqlalchemy as sa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.lease import KvSnapshotLease
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStatus
from fluss_tiering.server.store import schema
from fluss_tiering.server.store.database import Database
from fluss_tiering.server.store.layout import check_layout, migrate
from fluss_tiering.server.store.lease_rows import StoredLeases, stored_leases
from fluss_tiering.server.store.records import CommittedLakeSnapshot, LeaseAttempt
from fluss_tiering.server.store.rows import attempt_from_row, bucket_from_row, round_from_row, status_from_row
from fluss_tiering.server.store.transaction import SqlTransaction

T = TypeVar("T")


class Fence(Protocol):
    """Keeps a server from writing to a database that another one has taken over."""

    def enter(self, connection: sa.Connection) -> str:
        """Passes the transaction, and holds off a take-over until it ends; returns the transaction's name.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER when another server is the active one.
        """
        ...

    def was_committed(self, name: str) -> bool:
        """Whether a transaction was committed whose commit got no answer.

        Raises:
            FlussTieringError: UNAVAILABLE when nobody can tell.
        """
        ...


class SqlTieringStore:
    """The store in a database of its own; used by one thread at a time."""

    def __init__(self, database: Database, fence: Fence | None) -> None:
        self._database = database
        self._fence = fence

    @classmethod
    def open(cls, location: Path | str, fence: Fence | None = None) -> Self:
        """Opens the database in its present layout; a file that does not exist is made.

        Args:
            location: a SQLite file, or the URL of a PostgreSQL database.
            fence: what every transaction must pass; needed where several servers share the database.

        Raises:
            FlussTieringError: STORAGE when it cannot be opened, UNAVAILABLE when it cannot be reached, CORRUPT_DATA
                when it is none of ours, INVALID_REQUEST when a newer server wrote it or the URL is none.
        """
        store = cls(open_database(location), fence)
        try:
            migrate(store._database, fence.enter if fence else lambda _: None)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open_to_read(cls, location: Path | str) -> Self:
        """Opens the database without migrating it. Raises as `open`, and UNAVAILABLE for another layout."""
        store = cls(open_database(location), None)
        try:
            check_layout(store._database)
        except BaseException:
            store.close()
            raise
        return store

    def bind(self, storage_id: str, location: str) -> None:
        """Binds a new database to the storage whose tables it speaks of.

        Raises:
            FlussTieringError: INVALID_REQUEST when it is bound to another one; nothing was changed then.
        """
        if not self.is_bound(storage_id, location):
            with self.transaction() as transaction:
                transaction.put_bound_storage(storage_id, location)

    def is_bound(self, storage_id: str | None, location: str) -> bool:
        """Whether the database is bound to this storage, whose id is None before its first use.

        Raises:
            FlussTieringError: INVALID_REQUEST when it is bound to another one.
        """
        bound = self._read(sa.select(schema.bound_storage))
        if bound and bound[0].storage_id != storage_id:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{self._database.name} belongs to the storage at {bound[0].location} ({bound[0].storage_id}), not to "
                f"{location} ({storage_id or 'without an id'}): its epochs, leases and offsets are of other tables; "
                "start the server with that storage, or with a database of its own",
            )
        return bool(bound)

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        """A transaction that is durable when the block ends, and undone when the block or the commit raises."""
        with self._database.errors("nothing was changed"), self._database.engine.connect() as connection:
            begun = connection.begin()
            try:
                name = self._fence.enter(connection) if self._fence else None
                yield SqlTransaction(connection)
            except BaseException:
                begun.rollback()
                raise
            try:
                begun.commit()
            except sa.exc.DBAPIError:
                if self._fence is None or name is None or not self._fence.was_committed(name):
                    raise

    def leases(self) -> Sequence[KvSnapshotLease]:
        """All leases but for damaged ones."""
        return self._stored_leases().sound

    def damaged_leases(self) -> Mapping[str, str]:
        """Leases that cannot be loaded: lease id -> what is wrong with it."""
        return self._stored_leases().damaged

    def attempts(self) -> Sequence[LeaseAttempt]:
        """The newest attempt of every lease id."""
        return self._values(sa.select(schema.lease_attempts), attempt_from_row)

    def attempt_token(self) -> int:
        """The newest token that was given out; 0 before the first."""
        meta = schema.server_meta
        rows = self._read(sa.select(meta.c.value).where(meta.c.name == schema.ATTEMPT_TOKEN_NAME))
        return int(rows[0].value) if rows else 0

    def statuses(self) -> Sequence[TieringStatus]:
        """All tables' statuses."""
        return self._values(sa.select(schema.tiering_statuses), status_from_row)

    def running_rounds(self) -> Sequence[TieringRound]:
        """The rounds that have not ended."""
        rounds = schema.tiering_rounds
        return self._values(sa.select(rounds).where(rounds.c.state == TieringState.TIERING.value), round_from_row)

    def round(self, table_id: int, tiering_epoch: int) -> TieringRound | None:
        """A round by its name."""
        rounds = schema.tiering_rounds
        which = sa.select(rounds).where(rounds.c.table_id == table_id, rounds.c.tiering_epoch == tiering_epoch)
        return next(iter(self._values(which, round_from_row)), None)

    def rounds(self, *, path: TablePath | None, lease_id: str | None, limit: int) -> Sequence[TieringRound]:
        """The newest `limit` rounds of each table that fits, by table path, newest first."""
        rounds = schema.tiering_rounds
        newness = sa.func.row_number().over(partition_by=rounds.c.table_id, order_by=rounds.c.tiering_epoch.desc())
        fitting = sa.select(rounds, newness.label("newness"))
        if path is not None:
            fitting = fitting.where(rounds.c.database_name == path.database, rounds.c.table_name == path.table)
        if lease_id is not None:
            fitting = fitting.where(rounds.c.lease_id == lease_id)
        numbered = fitting.subquery()
        newest = sa.select(numbered).where(numbered.c.newness <= limit).order_by(numbered.c.newness)
        # By path here, since each database has an order of its own for letters.
        return sorted(self._values(newest, round_from_row), key=lambda each: each.path)

    def lake_snapshots(self) -> Sequence[CommittedLakeSnapshot]:
        """The newest lake snapshot of each table."""
        snapshots = schema.lake_snapshots
        newest = sa.select(sa.func.max(snapshots.c.commit_order)).group_by(snapshots.c.table_id)
        return self._committed(snapshots.c.commit_order.in_(newest))

    def lake_snapshot(self, table_id: int, snapshot_id: int) -> CommittedLakeSnapshot | None:
        """A lake snapshot by its id."""
        snapshots = schema.lake_snapshots
        which = sa.and_(snapshots.c.table_id == table_id, snapshots.c.snapshot_id == snapshot_id)
        return next(iter(self._committed(which)), None)

    def close(self) -> None:
        """Closes the database."""
        self._database.engine.dispose()

    def _committed(self, which: sa.ColumnElement[bool]) -> list[CommittedLakeSnapshot]:
        snapshots, offsets = schema.lake_snapshots, schema.lake_snapshot_offsets
        log_end_offsets: dict[int, dict[TableBucket, int]] = {}
        joined = sa.select(snapshots.c.table_id, offsets).join_from(snapshots, offsets).where(which)
        for each in self._read(joined):
            log_end_offsets.setdefault(each.commit_order, {})[bucket_from_row(each.table_id, each)] = (
                each.log_end_offset
            )
        return [
            CommittedLakeSnapshot(
                snapshot=LakeSnapshot(row.table_id, row.snapshot_id, log_end_offsets.get(row.commit_order, {})),
                tiering_epoch=row.tiering_epoch,
                commit_id=row.commit_id,
                offsets_path=row.offsets_path,
                committed_time=row.committed_time,
            )
            for row in self._read(sa.select(snapshots).where(which))
        ]

    def _stored_leases(self) -> StoredLeases:
        return stored_leases(
            self._read(sa.select(schema.kv_snapshot_leases)), self._read(sa.select(schema.leased_snapshots))
        )

    def _values(self, query: sa.Select[Any], convert: Callable[[sa.Row[Any]], T]) -> list[T]:
        """The rows as values.

        Raises:
            FlussTieringError: CORRUPT_DATA for a row that no server wrote.
        """
        values = []
        for row in self._read(query):
            try:
                values.append(convert(row))
            except (ValueError, TypeError) as error:
                raise FlussTieringError(
                    ErrorCode.CORRUPT_DATA,
                    f"{self._database.name} holds {tuple(row)}, which no server wrote ({error}); "
                    "restore it from a backup",
                ) from error
        return values

    def _read(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._database.errors("nothing was read"), self._database.engine.connect() as connection:
            return connection.execute(query).all()


def open_database(location: Path | str) -> Database:
    """The database of a SQLite file or of a PostgreSQL URL. Raises INVALID_REQUEST for a URL of another kind."""
    return Database.sqlite(location) if isinstance(location, Path) else Database.postgresql(location)
