"""The names of the partitions that a round changed."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column. The partitions of older rounds are not known."""
    op.add_column("tiering_rounds", sa.Column("partitions", sa.Text))
