"""Rows of a lake table in the clean layout, which has none of the columns `__bucket`, `__offset` and `__timestamp`.

Rows of a primary-key table are compared by their keys as ever. Rows of a log table have no place there, so that they
are compared by their values: each row has to occur as often as in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.names import catalog_name, quoted
from fluss_tiering.lake.protocol import CommittedSnapshot, ReadOffsets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN, BucketInfo, TableBucket, TableInfo

ROW_COLUMN: Final = "__row"
"""The column that stands for the offset: the values of the row as JSON."""


def with_buckets(table: TableInfo, rows: DataFrame) -> DataFrame:
    """Return rows of the lake with the number of their bucket; 0 for all rows if no column alone decides the bucket.

    Raises:
        FlussTieringError: INVALID_REQUEST if the number of buckets was changed, so that it says nothing of older rows.
    """
    if not _tells_buckets(table):
        return rows.withColumn(BUCKET_COLUMN, sf.lit(0))
    if table.bucket_count_epoch > 0:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the number of buckets of table {table.path} was changed (bucket count epoch {table.bucket_count_epoch}), "
            "and the rows of its lake table do not say in which bucket they are: expected a table that was never "
            "changed so; compare the rows with a reader of your own",
        )
    # Fluss places rows by the same hash.
    catalog = quoted(catalog_name(table.lake_catalog_properties))
    number = f"{catalog}.system.bucket({table.descriptor.num_buckets}, {quoted(table.descriptor.bucket_keys[0])})"
    return rows.withColumn(BUCKET_COLUMN, sf.expr(number))


def offsets_of(table: TableInfo, offsets: Mapping[TableBucket, int]) -> Mapping[TableBucket, int]:
    """Return the offsets of the buckets that rows of the lake can be told apart by: see `with_buckets`."""
    if _tells_buckets(table) or not offsets:
        return offsets
    return {TableBucket(table.table_id, 0): sum(offsets.values())}


def without_places(table: TableInfo, rows: DataFrame) -> DataFrame:
    """Return rows of a side with what can be compared: those of a log table without offset and time."""
    if not _tells_buckets(table):
        rows = rows.withColumn(BUCKET_COLUMN, sf.lit(0))
    if table.has_primary_key:
        return rows
    values = sf.struct(*(sf.col(quoted(column.name)) for column in table.descriptor.columns))
    return rows.drop(OFFSET_COLUMN, TIMESTAMP_COLUMN).withColumn(ROW_COLUMN, sf.to_json(values))


def _tells_buckets(table: TableInfo) -> bool:
    return len(table.descriptor.bucket_keys) == 1


def begin_of_comparison(
    table: TableInfo,
    lake: IcebergTable,
    buckets: Sequence[BucketInfo],
    read_offsets: ReadOffsets | None,
    old: Collection[int],
) -> CommittedSnapshot | None:
    """Return the snapshot of a log table's lake table after which the logs are compared.

    It is the newest one of `old` or, if none of them will do, the oldest one after which the logs have all records.

    Args:
        table: The table. With a primary key, it has no such snapshot.
        lake: Its lake table.
        buckets: The buckets of which the lake has something.
        read_offsets: Reads the offsets of a commit of another tiering service.
        old: The ids of snapshots whose rows need no comparison.

    Returns:
        None if everything is compared from the start of the logs.

    Raises:
        FlussTieringError: LOG_OFFSET_OUT_OF_RANGE if all of the snapshots are too old; STORAGE if the history or its
            offsets cannot be read.
    """
    cut = {info.bucket: info.log_start_offset for info in buckets if info.log_start_offset > 0}
    if table.has_primary_key or not ((cut and lake.is_clean) or old):
        return None
    begin = None
    for snapshot in lake.commits(read_offsets):
        offsets = snapshot.commit.log_end_offsets
        if not all(offsets.get(bucket, 0) >= start for bucket, start in cut.items()):
            break
        begin = snapshot
        if begin.snapshot_id in old:
            return begin
    if not cut:
        return None
    if begin is not None or not lake.is_clean:
        return begin
    bucket, start = next(iter(cut.items()))
    raise FlussTieringError(
        ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
        f"{bucket}: its log begins at offset {start}, and rows of the lake table {table.lake_path} have no "
        f"{OFFSET_COLUMN} to leave out those before: expected a lake snapshot of a round that ended behind this "
        "offset; tier the table, and verify it again",
    )
