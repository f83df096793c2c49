"""The storage whose tables the database speaks of."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds `bound_storage`; servers of the first release, which do not ask Alembic, refuse the database from now on."""
    op.create_table(
        "bound_storage",
        sa.Column("storage_id", sa.Text, primary_key=True),
        sa.Column("location", sa.Text, nullable=False),
    )
    op.execute("UPDATE server_meta SET value = 2 WHERE name = 'schema_version'")
