"""Which rounds were interrupted, and how many of a table in a row."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns. Rounds from before count as not interrupted."""
    op.add_column("tiering_rounds", sa.Column("interrupted", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("tiering_statuses", sa.Column("interruptions", sa.Integer, nullable=False, server_default="0"))
