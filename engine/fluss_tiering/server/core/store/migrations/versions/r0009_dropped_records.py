"""How many log records of a table were dropped before they were in the lake."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the columns. Nothing is known of what was dropped before."""
    op.add_column(
        "tiering_statuses", sa.Column("dropped_untiered_records", sa.BigInteger, nullable=False, server_default="0")
    )
    op.add_column("tiering_statuses", sa.Column("dropped_untiered_time", sa.BigInteger))
