"""The writes of one transaction, as SQL statements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import KvSnapshotLease, TieringRound, TieringStatus
from fluss_tiering.server.core.store import schema
from fluss_tiering.server.core.store.records import CommittedLakeSnapshot, LeaseAttempt
from fluss_tiering.server.core.store.rows import (
    attempt_to_columns,
    bucket_to_columns,
    round_to_columns,
    status_to_columns,
)


class SqlTransaction:
    """Writes that become durable together, or not at all. The store begins and ends the connection's transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def put_bound_storage(self, storage_id: str, location: str) -> None:
        """Record the storage that the database belongs to. This happens once."""
        self._connection.execute(sa.insert(schema.bound_storage), {"storage_id": storage_id, "location": location})

    def rename_bound_storage(self, before: str, storage_id: str, location: str) -> None:
        """Record the new id and location of the storage that the database belongs to; nothing if it has another id."""
        bound = schema.bound_storage
        self._connection.execute(
            sa.update(bound).where(bound.c.storage_id == before).values(storage_id=storage_id, location=location)
        )

    def put_secret(self, name: str, value: bytes) -> None:
        """Record a new secret of the server."""
        self._connection.execute(sa.insert(schema.server_secrets), {"name": name, "value": value})

    def put_lease(self, lease: KvSnapshotLease) -> None:
        """Insert or replace a lease, and pin its snapshots. What it pinned in other buckets stays."""
        self._put(
            schema.kv_snapshot_leases,
            [
                {
                    "lease_id": lease.lease_id,
                    "acquired_time": lease.acquired_time,
                    "expiration_time": lease.expiration_time,
                    "attempt_token": lease.attempt_token,
                }
            ],
        )
        self._put(
            schema.leased_snapshots,
            [
                {**_leased_bucket(lease.lease_id, bucket), "snapshot_id": snapshot_id}
                for bucket, snapshot_id in lease.snapshots.items()
            ],
        )

    def delete_leased_snapshots(self, lease_id: str, buckets: Iterable[TableBucket]) -> None:
        """Let a lease pin these buckets no longer."""
        gone = [{f"{name}_": value for name, value in _leased_bucket(lease_id, each).items()} for each in buckets]
        if gone:
            self._connection.execute(_DELETE_LEASED_SNAPSHOT, gone)

    def put_lease_expirations(self, expiration_times: Mapping[str, int]) -> None:
        """Set when existing leases expire: lease id -> milliseconds since the epoch."""
        if expiration_times:
            self._connection.execute(
                _SET_EXPIRATION, [{"id": lease_id, "time": time} for lease_id, time in expiration_times.items()]
            )

    def delete_lease(self, lease_id: str) -> None:
        """Delete a lease, even a damaged one."""
        # The foreign key alone is not enough: a damaged lease may have snapshots without its own row.
        self._delete(schema.leased_snapshots, lease_id=lease_id)
        self._delete(schema.kv_snapshot_leases, lease_id=lease_id)

    def put_attempt(self, attempt: LeaseAttempt) -> None:
        """Insert or replace the newest attempt under a lease id."""
        self._put(schema.lease_attempts, [attempt_to_columns(attempt)])

    def delete_attempts(self, lease_ids: Iterable[str]) -> None:
        """Delete the attempts under these lease ids."""
        for lease_id in lease_ids:
            self._delete(schema.lease_attempts, lease_id=lease_id)

    def put_attempt_token(self, attempt_token: int) -> None:
        """Set the newest token that was given out."""
        self._put(schema.server_meta, [{"name": schema.ATTEMPT_TOKEN_NAME, "value": attempt_token}])

    def put_coordinator_epoch(self, coordinator_epoch: int) -> None:
        """Set the coordinator epoch of the server that is active now."""
        self._put(schema.server_meta, [{"name": schema.COORDINATOR_EPOCH_NAME, "value": coordinator_epoch}])

    def put_statuses(self, statuses: Sequence[TieringStatus]) -> None:
        """Insert or replace the statuses of tables."""
        self._put(schema.tiering_statuses, [status_to_columns(status) for status in statuses])

    def put_rounds(self, rounds: Sequence[TieringRound]) -> None:
        """Insert or replace rounds."""
        self._put(schema.tiering_rounds, [round_to_columns(each) for each in rounds])

    def prune_rounds(self, table_ids: Collection[int], keep: int) -> None:
        """Delete the rounds of each table except its newest `keep`."""
        if table_ids:
            self._connection.execute(_prune(schema.tiering_rounds.c.tiering_epoch, keep), _by_table(table_ids))

    def put_lake_snapshot(self, committed: CommittedLakeSnapshot) -> None:
        """Add a lake snapshot, as the newest one of its table."""
        self._connection.execute(
            sa.insert(schema.lake_snapshots),
            {
                "table_id": committed.table_id,
                "snapshot_id": committed.snapshot_id,
                "tiering_epoch": committed.tiering_epoch,
                "commit_id": committed.commit_id,
                "offsets_path": committed.offsets_path,
                "committed_time": committed.committed_time,
                "log_end_offsets": committed.offsets.data,
            },
        )

    def prune_lake_snapshots(self, table_id: int, keep: int) -> None:
        """Delete a table's lake snapshots except the newest `keep`."""
        self._connection.execute(_prune(schema.lake_snapshots.c.commit_order, keep), _by_table([table_id]))

    def delete_table(self, table_id: int) -> None:
        """Delete a table's status and lake snapshots, and its rounds except the newest one of each lease."""
        for table in (schema.tiering_statuses, schema.lake_snapshots):
            self._delete(table, table_id=table_id)
        rounds = schema.tiering_rounds
        of_table = rounds.c.table_id == table_id
        newest = sa.select(sa.func.max(rounds.c.tiering_epoch)).where(of_table).group_by(rounds.c.lease_id)
        self._connection.execute(sa.delete(rounds).where(of_table, rounds.c.tiering_epoch.not_in(newest)))

    def delete_rounds(self, table_ids: Collection[int]) -> None:
        """Delete all rounds of these tables."""
        for table_id in table_ids:
            self._delete(schema.tiering_rounds, table_id=table_id)

    def _delete(self, table: sa.Table, **key: object) -> None:
        self._connection.execute(sa.delete(table).where(*(table.c[name] == value for name, value in key.items())))

    def _put(self, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> None:
        """Insert rows, and replace those that have the same keys."""
        if rows:
            self._connection.execute(_upsert(self._connection.dialect.name, table), rows)


_SET_EXPIRATION: Final = (
    sa.update(schema.kv_snapshot_leases)
    .where(schema.kv_snapshot_leases.c.lease_id == sa.bindparam("id"))
    .values(expiration_time=sa.bindparam("time"))
)


_DELETE_LEASED_SNAPSHOT: Final = sa.delete(schema.leased_snapshots).where(
    *(column == sa.bindparam(f"{column.name}_") for column in schema.leased_snapshots.primary_key)
)


def _leased_bucket(lease_id: str, bucket: TableBucket) -> dict[str, object]:
    return {"lease_id": lease_id, "table_id": bucket.table_id, **bucket_to_columns(bucket)}


@cache
def _upsert(dialect: str, table: sa.Table) -> sa.Executable:
    # Both databases have the same statement, but SQLAlchemy has one function for each.
    insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={column.name: insert.excluded[column.name] for column in table.columns if not column.primary_key},
    )


@cache
def _prune(order: sa.Column[Any], keep: int) -> sa.Executable:
    table = order.table
    of_table = table.c.table_id == sa.bindparam("of_table")
    # The newest row that is not kept: it and all older ones are deleted.
    newest = sa.select(order).where(of_table).order_by(order.desc()).limit(1).offset(keep)
    return sa.delete(table).where(of_table, order <= newest.scalar_subquery())


def _by_table(table_ids: Collection[int]) -> list[dict[str, int]]:
    return [{"of_table": table_id} for table_id in table_ids]
