"""The audit of tables whose rows expire in Fluss without a changelog (`table.kv.ttl`). The lake keeps these rows.

What can be checked all the same: every row that is in a bucket's KV snapshot, or was changed in the log behind it, must
be in the lake as it is, and a key that the log deleted must not be there. A row that is only in the lake is excused if
its bucket was read from a KV snapshot, and the log behind the snapshot does not mention its key: the table may have had
it, and may have dropped it before the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from fluss_tiering.lake.expired_records import expired_records
from fluss_tiering.lake.names import quoted
from fluss_tiering.model.table import BUCKET_COLUMN, TableInfo
from fluss_tiering.model.table_options import KV_TTL
from fluss_tiering.spark.audit.source_rows import DELETED_COLUMN

_COUNT: Final = "__count"


def expires_after(table: TableInfo) -> str | None:
    """Return after which time rows of a table expire, as its option says; None if they do not."""
    return table.descriptor.properties.get(KV_TTL)


def without_expired(
    table: TableInfo, source: DataFrame, lake: DataFrame, in_snapshot: Column
) -> tuple[DataFrame, Mapping[int, int]]:
    """Return the lake's rows without those that may have expired, and bucket -> the number of the latter.

    Args:
        source: The rows and changes of the source, deletes among them.
        lake: The hashed rows of the lake.
        in_snapshot: The condition that a row of the lake is in a bucket that was read from a KV snapshot.
    """
    key = list(table.descriptor.primary_key)
    columns = [sf.col(quoted(name)) for name in key]
    alone = lake.where(in_snapshot).join(source.select(*columns).distinct(), key, "left_anti")
    # A key that the lake has twice is an error, whether its row has expired or not.
    counted = alone.groupBy(*columns).agg(
        sf.count(sf.lit(1)).alias(_COUNT), sf.first(BUCKET_COLUMN).alias(BUCKET_COLUMN)
    )
    expired = counted.where(sf.col(_COUNT) == 1)
    counts = {row[BUCKET_COLUMN]: row["count"] for row in expired.groupBy(BUCKET_COLUMN).count().collect()}
    return lake.join(expired.select(*columns), key, "left_anti"), counts


def without_records(table: TableInfo, rows: DataFrame, now: datetime) -> DataFrame:
    """Return the rows of a side without those that the table's options let maintenance delete from the lake.

    A key whose last change is so old counts as deleted.

    Args:
        rows: The rows of the lake, or the rows or changes of the source.
        now: The time that counts as now.
    """
    expired = expired_records(table, now)
    if expired is None:
        return rows
    is_expired = sf.coalesce(sf.expr(expired), sf.lit(False))
    if not table.has_primary_key or DELETED_COLUMN not in rows.columns:
        return rows.where(~is_expired)
    return rows.withColumn(DELETED_COLUMN, sf.col(DELETED_COLUMN) | is_expired)
