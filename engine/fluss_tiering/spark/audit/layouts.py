"""Rows of a lake table in the clean layout, which has none of the columns `__bucket`, `__offset` and `__timestamp`.

Rows of a primary-key table are compared by their keys as ever. Rows of a log table have no place there, so that they
are compared by their values: each row has to occur as often as in the log.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from fluss_tiering.lake.names import catalog_name, quoted
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN, TableInfo
from fluss_tiering.spark.round.plan import RoundPlan

ROW_COLUMN: Final = "__row"
"""The column that stands for the offset: the values of the row as JSON."""


def with_buckets(table: TableInfo, rows: DataFrame) -> DataFrame:
    """Return rows of the lake with the number of their bucket; 0 for all rows of a table without a bucket key."""
    keys = table.descriptor.bucket_keys
    if not keys:
        return rows.withColumn(BUCKET_COLUMN, sf.lit(0))
    # Fluss places rows by the same hash.
    catalog = quoted(catalog_name(table.lake_catalog_properties))
    number = f"{catalog}.system.bucket({table.descriptor.num_buckets}, {quoted(keys[0])})"
    return rows.withColumn(BUCKET_COLUMN, sf.expr(number))


def without_places(table: TableInfo, rows: DataFrame) -> DataFrame:
    """Return rows of a side with what can be compared: those of a log table without offset and time."""
    if table.has_primary_key:
        return rows
    values = sf.struct(*(sf.col(quoted(column.name)) for column in table.descriptor.columns))
    rows = rows.drop(OFFSET_COLUMN, TIMESTAMP_COLUMN).withColumn(ROW_COLUMN, sf.to_json(values))
    return rows if table.descriptor.bucket_keys else rows.withColumn(BUCKET_COLUMN, sf.lit(0))


def require_whole_logs(table: TableInfo, plan: RoundPlan) -> None:
    """Refuse a log table of whose log the beginning is gone, since the lake's rows from there cannot be told apart.

    Raises:
        FlussTieringError: LOG_OFFSET_OUT_OF_RANGE if a log does not begin at offset 0.
    """
    for bucket, start in plan.start_offsets.items():
        if start > 0 and not table.has_primary_key:
            raise FlussTieringError(
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
                f"{bucket}: its log begins at offset {start}, while rows of the lake table {table.lake_path} have no "
                f"{OFFSET_COLUMN} to leave out those before: expected a whole log; compare the newer rows by a column "
                "of your own",
            )
