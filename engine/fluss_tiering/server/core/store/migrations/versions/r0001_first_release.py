"""The layout of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables of the first release."""
    meta = op.create_table(
        "server_meta",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(meta, [{"name": "schema_version", "value": 1}])
    op.create_table(
        "kv_snapshot_leases",
        sa.Column("lease_id", sa.Text, primary_key=True),
        sa.Column("acquired_time", sa.BigInteger, nullable=False),
        sa.Column("expiration_time", sa.BigInteger, nullable=False),
        sa.Column("attempt_token", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "leased_snapshots",
        sa.Column(
            "lease_id", sa.Text, sa.ForeignKey("kv_snapshot_leases.lease_id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("table_id", sa.BigInteger, primary_key=True),
        sa.Column("partition_id", sa.BigInteger, primary_key=True),
        sa.Column("bucket_id", sa.Integer, primary_key=True),
        sa.Column("snapshot_id", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "lease_attempts",
        sa.Column("lease_id", sa.Text, primary_key=True),
        sa.Column("attempt_token", sa.BigInteger, nullable=False),
        sa.Column("started_time", sa.BigInteger, nullable=False),
        sa.Column("cancelled_reason", sa.Text),
    )
    op.create_table(
        "tiering_statuses",
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
    )
    op.create_table(
        "tiering_rounds",
        sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tiering_epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("database_name", sa.Text, nullable=False),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("lease_id", sa.Text, nullable=False, index=True),
        sa.Column("attempt_token", sa.BigInteger),
        sa.Column("driver", sa.Text, nullable=False),
        sa.Column("start_time", sa.BigInteger, nullable=False),
        sa.Column("end_time", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Column("rows", sa.BigInteger),
        sa.Column("bytes", sa.BigInteger),
        sa.Column("files", sa.BigInteger),
        sa.Column("lake_snapshot_id", sa.BigInteger),
        sa.Column("force_finished", sa.Boolean, nullable=False),
    )
    op.create_table(
        "lake_snapshots",
        sa.Column(
            "commit_order", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
        sa.Column("table_id", sa.BigInteger, nullable=False),
        sa.Column("snapshot_id", sa.BigInteger, nullable=False),
        sa.Column("tiering_epoch", sa.BigInteger, nullable=False),
        sa.Column("commit_id", sa.Text, nullable=False),
        sa.Column("offsets_path", sa.Text, nullable=False),
        sa.Column("committed_time", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("table_id", "snapshot_id"),
    )
    op.create_table(
        "lake_snapshot_offsets",
        sa.Column(
            "commit_order",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            sa.ForeignKey("lake_snapshots.commit_order", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("partition_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("bucket_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("log_end_offset", sa.BigInteger, nullable=False),
    )
