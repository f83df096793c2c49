"""The indexes by which the rounds of a table or of a lease are listed page by page."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the indexes. The new one of leases takes the place of the old one."""
    running = sa.text("state = 'Tiering'")
    op.drop_index("ix_tiering_rounds_lease_id", "tiering_rounds")
    op.create_index("ix_tiering_rounds_of_lease", "tiering_rounds", ["lease_id", "table_id", "tiering_epoch"])
    op.create_index(
        "ix_tiering_rounds_running", "tiering_rounds", ["table_id"], sqlite_where=running, postgresql_where=running
    )
    op.create_index("ix_tiering_statuses_path", "tiering_statuses", ["database_name", "table_name"])
