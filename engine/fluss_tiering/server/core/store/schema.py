"""The tables of the server's database in the present layout. `layout` brings older layouts to it."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

metadata = sa.MetaData()

NO_PARTITION: Final = -1
"""Stands for "no partition" where the column is part of a key, because SQL does not allow NULL there."""

server_meta = sa.Table(
    "server_meta",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
"""Numbers that belong to the server as a whole, by the names below."""

ATTEMPT_TOKEN_NAME: Final = "attempt_token"  # noqa: S105 - the name of a row

COORDINATOR_EPOCH_NAME: Final = "coordinator_epoch"

server_secrets = sa.Table(
    "server_secrets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)
"""Secrets that the servers of one database share."""

bound_storage = sa.Table(
    "bound_storage",
    metadata,
    sa.Column("storage_id", sa.Text, primary_key=True),
    sa.Column("location", sa.Text, nullable=False),
)
"""The storage that the database belongs to, in one row.

The epochs and offsets in the database would be wrong for the tables of another storage.
"""

kv_snapshot_leases = sa.Table(
    "kv_snapshot_leases",
    metadata,
    sa.Column("lease_id", sa.Text, primary_key=True),
    sa.Column("acquired_time", sa.BigInteger, nullable=False),
    sa.Column("expiration_time", sa.BigInteger, nullable=False),
    sa.Column("attempt_token", sa.BigInteger, nullable=False),
)

leased_snapshots = sa.Table(
    "leased_snapshots",
    metadata,
    sa.Column("lease_id", sa.Text, sa.ForeignKey("kv_snapshot_leases.lease_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("table_id", sa.BigInteger, primary_key=True),
    sa.Column("partition_id", sa.BigInteger, primary_key=True),
    sa.Column("bucket_id", sa.Integer, primary_key=True),
    sa.Column("snapshot_id", sa.BigInteger, nullable=False),
)

lease_attempts = sa.Table(
    "lease_attempts",
    metadata,
    sa.Column("lease_id", sa.Text, primary_key=True),
    sa.Column("attempt_token", sa.BigInteger, nullable=False),
    sa.Column("started_time", sa.BigInteger, nullable=False),
    sa.Column("cancelled_reason", sa.Text),
)

tiering_statuses = sa.Table(
    "tiering_statuses",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("database_name", sa.Text, nullable=False),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("state_since", sa.BigInteger, nullable=False),
    sa.Column("tiering_epoch", sa.BigInteger, nullable=False),
    sa.Column("last_tiered_time", sa.BigInteger),
    sa.Column("last_error", sa.Text),
    sa.Column("last_error_time", sa.BigInteger),
    sa.Column("consecutive_failures", sa.Integer, nullable=False),
    sa.Column("next_retry_time", sa.BigInteger),
    sa.Column("interruptions", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failing_since", sa.BigInteger),
    sa.Column("dropped_untiered_records", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("dropped_untiered_time", sa.BigInteger),
    sa.Index("ix_tiering_statuses_path", "database_name", "table_name"),
)

_RUNNING: Final = sa.text("state = 'Tiering'")

tiering_rounds = sa.Table(
    "tiering_rounds",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("tiering_epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("database_name", sa.Text, nullable=False),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("lease_id", sa.Text, nullable=False),
    sa.Column("attempt_token", sa.BigInteger),
    sa.Column("driver", sa.Text, nullable=False),
    sa.Column("start_time", sa.BigInteger, nullable=False),
    sa.Column("end_time", sa.BigInteger),
    sa.Column("error", sa.Text),
    # rows, bytes and files are NULL together: a round without stats.
    sa.Column("rows", sa.BigInteger),
    sa.Column("bytes", sa.BigInteger),
    sa.Column("files", sa.BigInteger),
    sa.Column("lake_snapshot_id", sa.BigInteger),
    # A JSON list of names.
    sa.Column("partitions", sa.Text),
    sa.Column("force_finished", sa.Boolean, nullable=False),
    # NULL for rounds that a server began before there were coordinator epochs.
    sa.Column("coordinator_epoch", sa.BigInteger),
    sa.Column("interrupted", sa.Boolean, nullable=False, server_default=sa.false()),
    # A JSON object of what is known of it.
    sa.Column("origin", sa.Text),
    sa.Column("waiting_since", sa.BigInteger),
    sa.Index("ix_tiering_rounds_of_lease", "lease_id", "table_id", "tiering_epoch"),
    # Few rows at a time are not over, and they are found when the server starts.
    sa.Index("ix_tiering_rounds_running", "table_id", sqlite_where=_RUNNING, postgresql_where=_RUNNING),
)

lake_snapshots = sa.Table(
    "lake_snapshots",
    metadata,
    # The order of commits, since a lake's own snapshot ids are random. SQLite counts up INTEGER keys only, not BIGINT.
    sa.Column("commit_order", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("table_id", sa.BigInteger, nullable=False),
    sa.Column("snapshot_id", sa.BigInteger, nullable=False),
    sa.Column("tiering_epoch", sa.BigInteger, nullable=False),
    sa.Column("commit_id", sa.Text, nullable=False),
    sa.Column("offsets_path", sa.Text, nullable=False),
    sa.Column("committed_time", sa.BigInteger, nullable=False),
    # Of all buckets together, see `offsets`: a row for each bucket would take seconds to write.
    sa.Column("log_end_offsets", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("table_id", "snapshot_id"),
)
