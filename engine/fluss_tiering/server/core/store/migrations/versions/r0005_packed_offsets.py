"""The offsets of a lake snapshot in one value, instead of a row for each bucket."""

from itertools import groupby

import sqlalchemy as sa
from alembic import op

from fluss_tiering.server.core.store.offsets import PackedOffsets
from fluss_tiering.server.core.store.rows import bucket_from_row

revision = "0005"
down_revision = "0004"

_READ_AT_ONCE = 10_000
_WRITTEN_AT_ONCE = 200


def upgrade() -> None:
    """Pack the offsets of each lake snapshot, a part at a time, because there may be many millions."""
    # Every row is filled below, so that nobody sees the default.
    op.add_column("lake_snapshots", sa.Column("log_end_offsets", sa.LargeBinary, nullable=False, server_default=""))
    connection = op.get_bind()
    snapshots = sa.table(
        "lake_snapshots",
        sa.column("commit_order"),
        sa.column("table_id"),
        sa.column("log_end_offsets", sa.LargeBinary),
    )
    offsets = sa.table(
        "lake_snapshot_offsets",
        *(sa.column(name) for name in ("commit_order", "partition_id", "bucket_id", "log_end_offset")),
    )
    connection.execute(sa.update(snapshots).values(log_end_offsets=PackedOffsets.of({}).data))
    fill = (
        sa.update(snapshots)
        .where(snapshots.c.commit_order == sa.bindparam("of_order"))
        .values(log_end_offsets=sa.bindparam("packed"))
    )
    rows = connection.execute(
        sa.select(snapshots.c.table_id, offsets)
        .join_from(offsets, snapshots, offsets.c.commit_order == snapshots.c.commit_order)
        .order_by(offsets.c.commit_order, offsets.c.partition_id, offsets.c.bucket_id),
        execution_options={"yield_per": _READ_AT_ONCE},
    )
    packed: list[dict[str, object]] = []
    for commit_order, buckets in groupby(rows, lambda row: row.commit_order):
        known = {bucket_from_row(row.table_id, row): row.log_end_offset for row in buckets}
        packed.append({"of_order": commit_order, "packed": PackedOffsets.of(known).data})
        if len(packed) == _WRITTEN_AT_ONCE:
            connection.execute(fill, packed)
            packed = []
    if packed:
        connection.execute(fill, packed)
    op.drop_table("lake_snapshot_offsets")
