"""The table that records which storage the database belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create `bound_storage`. Servers of the first release do not use Alembic and now refuse the database."""
    op.create_table(
        "bound_storage",
        sa.Column("storage_id", sa.Text, primary_key=True),
        sa.Column("location", sa.Text, nullable=False),
    )
    op.execute("UPDATE server_meta SET value = 2 WHERE name = 'schema_version'")
