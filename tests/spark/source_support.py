"""Helpers for tests that read Fluss tables in Spark: tables with given columns, and what a scan gave to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from spark_support import Tiering

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.spark.startup.catalog_conf import CATALOG_CLASS

CATALOG = "fluss_catalog"


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, DataType.parse(text)) for name, text in types.items())


def create(
    tiering: Tiering,
    of_columns: tuple[Column, ...],
    rows: Sequence[Sequence[Any]] = (),
    *,
    key: str | None = None,
    bucket_key: str | None = None,
    num_buckets: int = 1,
) -> TableInfo:
    """Create a table with these rows. `key` makes it a primary-key table."""
    descriptor = TableDescriptor(
        columns=of_columns,
        primary_key=(key,) if key else (),
        bucket_keys=tuple(filter(None, (bucket_key or key,))),
        num_buckets=num_buckets,
    )
    table = tiering.client.create_table(new_path(), descriptor)
    write(tiering, table, rows)
    return table


def write(tiering: Tiering, table: TableInfo, rows: Sequence[Sequence[Any]]) -> None:
    if not rows:
        return
    schema = arrow_schema(table.descriptor.columns)
    arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    list(tiering.client.write_rows(table.path, kind, [pa.RecordBatch.from_arrays(arrays, schema=schema)]))


def load(tiering: Tiering, table: TableInfo, **options: str) -> DataFrame:
    reader = tiering.spark.read.format("fluss").option("server", tiering.target).option("table", str(table.path))
    return reader.options(**options).load()


def with_catalog(tiering: Tiering) -> None:
    """Set the catalog's server, as the settings of a session otherwise do."""
    tiering.spark.conf.set(f"spark.sql.catalog.{CATALOG}", CATALOG_CLASS)
    tiering.spark.conf.set(f"spark.sql.catalog.{CATALOG}.server", tiering.target)


def columns_read(frame: DataFrame) -> list[str]:
    """Return the columns that the scan of a frame reads."""
    return list(_plan(frame).collectLeaves().head().scan().readSchema().fieldNames())


def partition_count(frame: DataFrame) -> int:
    return _plan(frame).execute().getNumPartitions()


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().executedPlan()
