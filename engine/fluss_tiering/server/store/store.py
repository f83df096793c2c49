"""`TieringStore` over SQLAlchemy: one SQLite file in the data folder, WAL, synced at each commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.lease import KvSnapshotLease
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStatus
from fluss_tiering.server.store import schema
from fluss_tiering.server.store.lease_rows import StoredLeases, stored_leases
from fluss_tiering.server.store.protocol import StoreTransaction
from fluss_tiering.server.store.records import CommittedLakeSnapshot, LeaseAttempt
from fluss_tiering.server.store.rows import bucket_from_row, round_from_row, status_from_row
from fluss_tiering.server.store.transaction import SqlTransaction


class SqlTieringStore:
    """The store in a database of its own; used by one thread at a time."""

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self._engine = engine
        self._name = name

    @classmethod
    def open(cls, file: Path) -> Self:
        """Opens the database, which is made when it does not exist.

        Raises:
            FlussTieringError: STORAGE when it cannot be opened, CORRUPT_DATA when it is none, INVALID_REQUEST when a
                newer server wrote it.
        """
        # One connection: SQLite has one writer anyway, and the server's control thread is the only user.
        engine = sa.create_engine(
            f"sqlite:///{file}", poolclass=StaticPool, connect_args={"check_same_thread": False, "timeout": 5}
        )
        sa.event.listen(engine, "connect", _configure)
        store = cls(engine, str(file))
        try:
            store._migrate()
        except BaseException:
            store.close()
            raise
        return store

    @contextmanager
    def transaction(self) -> Iterator[StoreTransaction]:
        """A transaction that is durable when the block ends, and undone when the block or the commit raises."""
        with self._errors("nothing was changed"), self._engine.begin() as connection:
            yield SqlTransaction(connection)

    def leases(self) -> Sequence[KvSnapshotLease]:
        """All leases but for damaged ones."""
        return self._stored_leases().sound

    def damaged_leases(self) -> Mapping[str, str]:
        """Leases that cannot be loaded: lease id -> what is wrong with it."""
        return self._stored_leases().damaged

    def attempts(self) -> Sequence[LeaseAttempt]:
        """The newest attempt of every lease id."""
        return [
            LeaseAttempt(row.lease_id, row.attempt_token, row.started_time, row.cancelled_reason)
            for row in self._read(sa.select(schema.lease_attempts))
        ]

    def attempt_token(self) -> int:
        """The newest token that was given out; 0 before the first."""
        return self._number(schema.ATTEMPT_TOKEN_NAME) or 0

    def statuses(self) -> Sequence[TieringStatus]:
        """All tables' statuses."""
        return [status_from_row(row) for row in self._read(sa.select(schema.tiering_statuses))]

    def running_rounds(self) -> Sequence[TieringRound]:
        """The rounds that have not ended."""
        rounds = schema.tiering_rounds
        return [
            round_from_row(row)
            for row in self._read(sa.select(rounds).where(rounds.c.state == TieringState.TIERING.value))
        ]

    def round(self, table_id: int, tiering_epoch: int) -> TieringRound | None:
        """A round by its name."""
        rounds = schema.tiering_rounds
        rows = self._read(
            sa.select(rounds).where(rounds.c.table_id == table_id, rounds.c.tiering_epoch == tiering_epoch)
        )
        return round_from_row(rows[0]) if rows else None

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
        newest = (
            sa.select(numbered)
            .where(numbered.c.newness <= limit)
            .order_by(numbered.c.database_name, numbered.c.table_name, numbered.c.newness)
        )
        return [round_from_row(row) for row in self._read(newest)]

    def lake_snapshots(self) -> Sequence[CommittedLakeSnapshot]:
        """The newest lake snapshot of each table."""
        snapshots = schema.lake_snapshots
        newest = sa.select(sa.func.max(snapshots.c.commit_order)).group_by(snapshots.c.table_id)
        return self._committed(sa.select(snapshots).where(snapshots.c.commit_order.in_(newest)))

    def lake_snapshot(self, table_id: int, snapshot_id: int) -> CommittedLakeSnapshot | None:
        """A lake snapshot by its id."""
        snapshots = schema.lake_snapshots
        committed = self._committed(
            sa.select(snapshots).where(snapshots.c.table_id == table_id, snapshots.c.snapshot_id == snapshot_id)
        )
        return committed[0] if committed else None

    def close(self) -> None:
        """Closes the database."""
        self._engine.dispose()

    def _committed(self, query: sa.Select[Any]) -> list[CommittedLakeSnapshot]:
        offsets = schema.lake_snapshot_offsets
        return [
            CommittedLakeSnapshot(
                snapshot=LakeSnapshot(
                    table_id=row.table_id,
                    snapshot_id=row.snapshot_id,
                    log_end_offsets={
                        bucket_from_row(row.table_id, each): each.log_end_offset
                        for each in self._read(sa.select(offsets).where(offsets.c.commit_order == row.commit_order))
                    },
                ),
                tiering_epoch=row.tiering_epoch,
                commit_id=row.commit_id,
                offsets_path=row.offsets_path,
                committed_time=row.committed_time,
            )
            for row in self._read(query)
        ]

    def _stored_leases(self) -> StoredLeases:
        return stored_leases(
            self._read(sa.select(schema.kv_snapshot_leases)), self._read(sa.select(schema.leased_snapshots))
        )

    def _number(self, name: str) -> int | None:
        meta = schema.server_meta
        rows = self._read(sa.select(meta.c.value).where(meta.c.name == name))
        return rows[0].value if rows else None

    def _read(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._errors("nothing was read"), self._engine.connect() as connection:
            return connection.execute(query).all()

    def _migrate(self) -> None:
        with self._errors("the server did not start"):
            schema.metadata.create_all(self._engine)
            version = self._number(schema.SCHEMA_VERSION_NAME)
            if version is None:
                with self._engine.begin() as connection:
                    connection.execute(
                        sa.insert(schema.server_meta),
                        {"name": schema.SCHEMA_VERSION_NAME, "value": schema.SCHEMA_VERSION},
                    )
            elif version != schema.SCHEMA_VERSION:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"{self._name} has the layout of version {version}, this server knows {schema.SCHEMA_VERSION}: "
                    "run the server that wrote it",
                )

    @contextmanager
    def _errors(self, effect: str) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            foreign = "not a database" in str(error.orig) or "malformed" in str(error.orig)
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA if foreign else ErrorCode.STORAGE,
                f"the server's database {self._name} failed: {error.orig}; {effect}; "
                + ("restore it from a backup" if foreign else "check the disk's space and permissions"),
            ) from error


def _configure(connection: Any, _record: object) -> None:  # noqa: ANN401 - a driver's connection
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
