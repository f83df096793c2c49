"""The store in an SQL database: SQLite in a file or PostgreSQL, with each commit on the disk."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStatus
from fluss_tiering.server.core.store import schema
from fluss_tiering.server.core.store.database import Database, Fence
from fluss_tiering.server.core.store.layout import check_layout, migrate
from fluss_tiering.server.core.store.records import CommittedLakeSnapshot, LeaseAttempt, PackedOffsets, RoundsPage
from fluss_tiering.server.core.store.rows import (
    StoredLeases,
    attempt_from_row,
    round_from_row,
    status_from_row,
    stored_leases,
)
from fluss_tiering.server.core.store.transaction import SqlTransaction

T = TypeVar("T")


class SqlTieringStore:
    """The durable state of a server, in an SQL database of its own. Only one thread uses it at a time.

    Raises:
        FlussTieringError: By every method: STORAGE if the database fails; UNAVAILABLE if it cannot be reached;
            CORRUPT_DATA if it holds rows that no server wrote; by a transaction: NOT_LEADER_OR_FOLLOWER if another
            server has become the active one.
    """

    def __init__(self, database: Database, fence: Fence | None) -> None:
        self._database = database
        self._fence = fence

    @classmethod
    def open(cls, location: Path | str, fence: Fence | None = None) -> Self:
        """Open the database and migrate it to the present layout. A file that does not exist is created.

        Args:
            location: A SQLite file, or the URL of a PostgreSQL database.
            fence: The fence that every transaction must enter. It is needed if several servers share the database.

        Raises:
            FlussTieringError: STORAGE if the database cannot be opened; UNAVAILABLE if it cannot be reached;
                CORRUPT_DATA if it is not a tiering server's; INVALID_REQUEST if a newer server wrote it, or if the URL
                is not one of PostgreSQL.
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
        """Open the database without migrating it.

        Raises:
            FlussTieringError: See `open`; also UNAVAILABLE if the database has another layout.
        """
        store = cls(open_database(location), None)
        try:
            check_layout(store._database)
        except BaseException:
            store.close()
            raise
        return store

    def bind(self, storage_id: str, location: str) -> None:
        """Bind a new database to the storage whose tables it describes.

        Raises:
            FlussTieringError: INVALID_REQUEST if it is bound to another storage. Nothing is changed then.
        """
        if not self.is_bound(storage_id, location):
            with self.transaction() as transaction:
                transaction.put_bound_storage(storage_id, location)

    def is_bound(self, storage_id: str | None, location: str) -> bool:
        """Return whether the database is bound to this storage.

        Args:
            storage_id: The storage's id; None if the storage was never used and has none yet.
            location: The storage's location, for the message.

        Raises:
            FlussTieringError: INVALID_REQUEST if it is bound to another storage.
        """
        bound = self._read(sa.select(schema.bound_storage))
        if bound and bound[0].storage_id != storage_id:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{self._database.name} belongs to the storage at {bound[0].location} ({bound[0].storage_id}), not to "
                f"{location} ({storage_id or 'without an id'}): its epochs, leases and offsets belong to other tables; "
                "start the server with that storage, or with a database of its own; docs/how-to/restore.md says how a "
                "copied database is bound to a copied folder",
            )
        return bool(bound)

    def secret(self, name: str, size: int) -> bytes:
        """Return a secret of the servers of this database. The first call makes it.

        Args:
            name: The name of the secret.
            size: Its size in bytes.
        """
        secrets_ = schema.server_secrets
        rows = self._read(sa.select(secrets_.c.value).where(secrets_.c.name == name))
        if rows:
            return bytes(rows[0].value)
        made = secrets.token_bytes(size)
        with self.transaction() as transaction:
            transaction.put_secret(name, made)
        return made

    @property
    def name(self) -> str:
        """The file or URL for messages, without the password."""
        return self._database.name

    def has_statuses(self) -> bool:
        """Return whether the database has the status of any table."""
        return bool(self._read(sa.select(schema.tiering_statuses.c.table_id).limit(1)))

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        """Open a transaction. It is durable when the block ends, and undone if the block or the commit raises."""
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
            if self._fence is not None and name is not None:
                self._fence.committed(name)

    def leases(self) -> StoredLeases:
        """Return all leases, and what is wrong with those that cannot be loaded."""
        leases, pins = sa.select(schema.kv_snapshot_leases), sa.select(schema.leased_snapshots)
        return stored_leases(self._read(leases), self._read(pins))

    def attempts(self) -> Sequence[LeaseAttempt]:
        """Return the newest attempt of every lease id."""
        return self._values(sa.select(schema.lease_attempts), attempt_from_row)

    def attempt_token(self) -> int:
        """Return the newest token that was given out; 0 if none was."""
        return self._number(schema.ATTEMPT_TOKEN_NAME)

    def coordinator_epoch(self) -> int:
        """Return the coordinator epoch of the server that was active last; 0 if none was."""
        return self._number(schema.COORDINATOR_EPOCH_NAME)

    def statuses(self) -> Sequence[TieringStatus]:
        """Return the statuses of all tables."""
        return self._values(sa.select(schema.tiering_statuses), status_from_row)

    def running_rounds(self) -> Sequence[TieringRound]:
        """Return the rounds that have not ended."""
        rounds = schema.tiering_rounds
        return self._values(sa.select(rounds).where(rounds.c.state == TieringState.TIERING.value), round_from_row)

    def round(self, table_id: int, tiering_epoch: int) -> TieringRound | None:
        """Return a round; None if it is not stored."""
        rounds = schema.tiering_rounds
        which = sa.select(rounds).where(rounds.c.table_id == table_id, rounds.c.tiering_epoch == tiering_epoch)
        return next(iter(self._values(which, round_from_row)), None)

    def rounds_page(
        self,
        *,
        path: TablePath | None,
        lease_id: str | None,
        limit: int,
        after: int | None = None,
        max_tables: int = sys.maxsize,
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
        rounds = schema.tiering_rounds
        table_ids = [row[0] for row in self._read(_table_ids(path, lease_id, after, max_tables))]
        matching: list[sa.ColumnElement[bool]] = [rounds.c.table_id.in_(table_ids)]
        if path is not None:
            matching += [rounds.c.database_name == path.database, rounds.c.table_name == path.table]
        if lease_id is not None:
            matching.append(rounds.c.lease_id == lease_id)
        newness = sa.func.row_number().over(partition_by=rounds.c.table_id, order_by=rounds.c.tiering_epoch.desc())
        numbered = sa.select(rounds.c.table_id, rounds.c.tiering_epoch, newness.label("newness")).where(*matching)
        newest = numbered.subquery()
        same = (rounds.c.table_id == newest.c.table_id) & (rounds.c.tiering_epoch == newest.c.tiering_epoch)
        chosen = sa.select(rounds).join(newest, same).where(newest.c.newness <= limit)
        found = self._values(chosen.order_by(rounds.c.table_id, rounds.c.tiering_epoch.desc()), round_from_row)
        return RoundsPage(found, table_ids[-1] if len(table_ids) == max_tables else None)

    def dropped_tables(self) -> Mapping[int, int]:
        """Return the tables that have rounds but no status, each with the newest end of a round, in milliseconds."""
        rounds, statuses = schema.tiering_rounds, schema.tiering_statuses
        ended = sa.func.max(sa.func.coalesce(rounds.c.end_time, rounds.c.start_time)).label("ended")
        without = sa.select(rounds.c.table_id, ended).where(rounds.c.table_id.not_in(sa.select(statuses.c.table_id)))
        return {row.table_id: int(row.ended) for row in self._read(without.group_by(rounds.c.table_id))}

    def lake_snapshots(self) -> Sequence[CommittedLakeSnapshot]:
        """Return the newest lake snapshot of each table."""
        snapshots = schema.lake_snapshots
        newest = sa.select(sa.func.max(snapshots.c.commit_order)).group_by(snapshots.c.table_id)
        return self._committed(snapshots.c.commit_order.in_(newest))

    def lake_snapshot(self, table_id: int, snapshot_id: int) -> CommittedLakeSnapshot | None:
        """Return a lake snapshot; None if it is not stored."""
        snapshots = schema.lake_snapshots
        which = sa.and_(snapshots.c.table_id == table_id, snapshots.c.snapshot_id == snapshot_id)
        return next(iter(self._committed(which)), None)

    def break_off(self) -> None:
        """Break the connections, so that a call which waits for PostgreSQL fails. Any thread may call this."""
        self._database.break_off()

    def lake_offsets_paths(self, table_id: int) -> Sequence[str]:
        """Return the paths of the offsets files that the stored lake snapshots of a table name."""
        snapshots = schema.lake_snapshots
        rows = self._read(sa.select(snapshots.c.offsets_path).where(snapshots.c.table_id == table_id))
        return [row.offsets_path for row in rows]

    def close(self) -> None:
        """Close the database."""
        self._database.engine.dispose()

    def _committed(self, which: sa.ColumnElement[bool]) -> list[CommittedLakeSnapshot]:
        return [
            CommittedLakeSnapshot(
                table_id=row.table_id,
                snapshot_id=row.snapshot_id,
                offsets=PackedOffsets(row.log_end_offsets),
                tiering_epoch=row.tiering_epoch,
                commit_id=row.commit_id,
                offsets_path=row.offsets_path,
                committed_time=row.committed_time,
            )
            for row in self._read(sa.select(schema.lake_snapshots).where(which))
        ]

    def _number(self, name: str) -> int:
        """Return a number that belongs to the server as a whole; 0 if there is none."""
        meta = schema.server_meta
        rows = self._read(sa.select(meta.c.value).where(meta.c.name == name))
        return int(rows[0].value) if rows else 0

    def _values(self, query: sa.Select[Any], convert: Callable[[sa.Row[Any]], T]) -> list[T]:
        """Return the rows of a query as values.

        Raises:
            FlussTieringError: CORRUPT_DATA if there is a row that no server wrote.
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
    """Return the database of a SQLite file or of a PostgreSQL URL.

    Raises:
        FlussTieringError: INVALID_REQUEST if the URL is not one of PostgreSQL.
    """
    return Database.sqlite(location) if isinstance(location, Path) else Database.postgresql(location)


def _table_ids(path: TablePath | None, lease_id: str | None, after: int | None, limit: int) -> sa.Select[Any]:
    """Return the query for the ids of the tables whose rounds are listed, some at a time."""
    first = -1 if after is None else after
    if lease_id is None:
        statuses = schema.tiering_statuses
        ids = sa.select(statuses.c.table_id).where(statuses.c.table_id > first)
        if path is not None:
            ids = ids.where(statuses.c.database_name == path.database, statuses.c.table_name == path.table)
        return ids.order_by(statuses.c.table_id).limit(limit)
    # A lease may have thousands of rounds of each table. Each step finds the next table in the index, so that the
    # others are skipped.
    rounds = schema.tiering_rounds
    of_lease = sa.select(sa.func.min(rounds.c.table_id).label("table_id")).where(rounds.c.lease_id == lease_id)
    found = of_lease.where(rounds.c.table_id > first).cte("found", recursive=True)
    following = of_lease.where(rounds.c.table_id > found.c.table_id).scalar_subquery()
    found = found.union_all(sa.select(following).where(found.c.table_id.is_not(None)))
    return sa.select(found.c.table_id).where(found.c.table_id.is_not(None)).limit(limit)
