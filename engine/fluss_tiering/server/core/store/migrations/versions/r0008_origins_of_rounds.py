"""Where rounds were started, since when their records had waited, and since when tables fail."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns. Of a table that fails already, the time of its last failure is known."""
    op.add_column("tiering_rounds", sa.Column("origin", sa.Text))
    op.add_column("tiering_rounds", sa.Column("waiting_since", sa.BigInteger))
    op.add_column("tiering_statuses", sa.Column("failing_since", sa.BigInteger))
    op.execute("UPDATE tiering_statuses SET failing_since = last_error_time WHERE consecutive_failures > 0")
