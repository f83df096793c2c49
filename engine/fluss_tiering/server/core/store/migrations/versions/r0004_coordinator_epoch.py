"""The coordinator epoch in which each round was handed out."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column. Rounds from before have none, and their drivers name none."""
    op.add_column("tiering_rounds", sa.Column("coordinator_epoch", sa.BigInteger))
