"""The writes of one transaction, in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from fluss_tiering.model.lease import KvSnapshotLease
from fluss_tiering.model.tiering import TieringRound, TieringStatus
from fluss_tiering.server.store import schema
from fluss_tiering.server.store.records import CommittedLakeSnapshot, LeaseAttempt
from fluss_tiering.server.store.rows import bucket_to_columns, round_to_columns, status_to_columns


class SqlTransaction:
    """`StoreTransaction` on a connection whose transaction the store begins and ends."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def put_lease(self, lease: KvSnapshotLease) -> None:
        """Inserts or replaces a lease with all it pins."""
        self.delete_lease(lease.lease_id)
        self._connection.execute(
            sa.insert(schema.kv_snapshot_leases),
            {
                "lease_id": lease.lease_id,
                "acquired_time": lease.acquired_time,
                "expiration_time": lease.expiration_time,
                "attempt_token": lease.attempt_token,
            },
        )
        if lease.snapshots:
            self._connection.execute(
                sa.insert(schema.leased_snapshots),
                [
                    {
                        "lease_id": lease.lease_id,
                        "table_id": bucket.table_id,
                        **bucket_to_columns(bucket),
                        "snapshot_id": snapshot_id,
                    }
                    for bucket, snapshot_id in lease.snapshots.items()
                ],
            )

    def delete_lease(self, lease_id: str) -> None:
        """Deletes a lease."""
        self._delete(schema.kv_snapshot_leases, lease_id=lease_id)

    def put_attempt(self, attempt: LeaseAttempt) -> None:
        """Inserts or replaces the newest attempt under a lease id."""
        self._replace(
            schema.lease_attempts,
            {
                "lease_id": attempt.lease_id,
                "attempt_token": attempt.attempt_token,
                "started_time": attempt.started_time,
                "cancelled_reason": attempt.cancelled_reason,
            },
        )

    def delete_attempts(self, lease_ids: Iterable[str]) -> None:
        """Forgets the attempts under lease ids."""
        for lease_id in lease_ids:
            self._delete(schema.lease_attempts, lease_id=lease_id)

    def put_attempt_token(self, attempt_token: int) -> None:
        """Sets the newest token that was given out."""
        self._replace(schema.server_meta, {"name": schema.ATTEMPT_TOKEN_NAME, "value": attempt_token})

    def put_status(self, status: TieringStatus) -> None:
        """Inserts or replaces a table's status."""
        self._replace(schema.tiering_statuses, status_to_columns(status))

    def put_round(self, tiering_round: TieringRound) -> None:
        """Inserts or replaces a round."""
        self._replace(schema.tiering_rounds, round_to_columns(tiering_round))

    def prune_rounds(self, table_id: int, keep: int) -> None:
        """Deletes a table's rounds but for the newest `keep`."""
        self._prune(schema.tiering_rounds.c.tiering_epoch, table_id, keep)

    def put_lake_snapshot(self, committed: CommittedLakeSnapshot) -> None:
        """Appends a lake snapshot to its table's."""
        inserted = self._connection.execute(
            sa.insert(schema.lake_snapshots),
            {
                "table_id": committed.snapshot.table_id,
                "snapshot_id": committed.snapshot.snapshot_id,
                "tiering_epoch": committed.tiering_epoch,
                "commit_id": committed.commit_id,
                "offsets_path": committed.offsets_path,
                "committed_time": committed.committed_time,
            },
        )
        (commit_order,) = inserted.inserted_primary_key or (None,)
        if committed.snapshot.log_end_offsets:
            self._connection.execute(
                sa.insert(schema.lake_snapshot_offsets),
                [
                    {"commit_order": commit_order, **bucket_to_columns(bucket), "log_end_offset": offset}
                    for bucket, offset in committed.snapshot.log_end_offsets.items()
                ],
            )

    def prune_lake_snapshots(self, table_id: int, keep: int) -> None:
        """Deletes a table's lake snapshots but for the newest `keep`."""
        self._prune(schema.lake_snapshots.c.commit_order, table_id, keep)

    def delete_table(self, table_id: int) -> None:
        """Deletes a table's status, rounds and lake snapshots."""
        for table in (schema.tiering_statuses, schema.tiering_rounds, schema.lake_snapshots):
            self._delete(table, table_id=table_id)

    def delete_rounds_of_dropped_tables(self, before: int) -> None:
        """Deletes rounds that ended before then and whose table has no status any more."""
        rounds = schema.tiering_rounds
        present = sa.select(schema.tiering_statuses.c.table_id)
        self._connection.execute(sa.delete(rounds).where(rounds.c.table_id.not_in(present), rounds.c.end_time < before))

    def _delete(self, table: sa.Table, **key: object) -> None:
        self._connection.execute(sa.delete(table).where(*(table.c[name] == value for name, value in key.items())))

    def _replace(self, table: sa.Table, columns: Mapping[str, object]) -> None:
        # Delete and insert in one transaction: what every SQL database has, unlike its own kind of upsert.
        self._delete(table, **{column.name: columns[column.name] for column in table.primary_key})
        self._connection.execute(sa.insert(table), columns)

    def _prune(self, order: sa.Column[Any], table_id: int, keep: int) -> None:
        table = order.table
        newest = sa.select(order).where(table.c.table_id == table_id).order_by(order.desc()).limit(1).offset(keep)
        self._connection.execute(
            sa.delete(order.table).where(table.c.table_id == table_id, order <= newest.scalar_subquery())
        )
