"""Which records of a lake table are older than the table's options allow: maintenance deletes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fluss_tiering.lake.names import quoted
from fluss_tiering.model.data_type import DataTypeRoot
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import record_expiry


def expired_records(table: TableInfo, now: datetime | None = None) -> str | None:
    """Return the condition in Spark's SQL by which records of a table are expired; None if none ever are.

    They are expired by whole days, or by whole hours if the time is shorter than a day. Otherwise each maintenance
    would find a few, and rewrite their files. A record without a time is never expired. A time without a zone
    counts as UTC.

    Args:
        now: The time that counts as now; None for the clock of this program.

    Raises:
        FlussTieringError: INVALID_TABLE if the table's options are wrong.
    """
    expiry = record_expiry(table.descriptor.properties)
    if expiry is None:
        return None
    column, after_ms = expiry
    after = timedelta(milliseconds=after_ms)
    oldest = ((now or datetime.now(UTC)) - after).replace(minute=0, second=0, microsecond=0)
    if after >= timedelta(days=1):
        oldest = oldest.replace(hour=0)
    match table.descriptor.column(column).data_type.root:
        case DataTypeRoot.DATE:
            bound = f"DATE '{oldest:%Y-%m-%d}'"
        case DataTypeRoot.TIMESTAMP:
            bound = f"TIMESTAMP_NTZ '{oldest:%Y-%m-%d %H:%M:%S}'"
        case _:
            bound = f"TIMESTAMP '{oldest:%Y-%m-%d %H:%M:%S} UTC'"
    # Without the first half, Iceberg would delete the files of a partition without a time: null is below all values.
    return f"{quoted(column)} IS NOT NULL AND {quoted(column)} < {bound}"
