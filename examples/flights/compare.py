"""Reads the lake with Spark SQL, as any user of the lake would, and compares each row with the expected rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import SparkSession

from examples.flights.tables import DATABASE, TABLES
from fluss_tiering.spark.submit import spark_conf

_CATALOG: Final = "fluss_lake"
"""The server's default. The tables of a JDBC catalog are found only under the name with which they were created."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a lake table compares with the expected rows.

    Attributes:
        name: The name of the table.
        rows_expected: The number of expected rows.
        rows_in_lake: The number of rows in the lake.
        missing: The number of expected rows that the lake lacks. A row that is expected twice counts twice.
        unexpected: The number of rows in the lake that are not expected, counted in the same way.
    """

    name: str
    rows_expected: int
    rows_in_lake: int
    missing: int
    unexpected: int

    @property
    def equal(self) -> bool:
        """Whether the lake holds exactly the expected rows."""
        return not self.missing and not self.unexpected


def start_spark(lake_catalog_properties: Mapping[str, str], log: Path) -> SparkSession:
    """Return a session that reads the lake with Iceberg's own settings. The JVM's output goes to `log`."""
    builder: Any = SparkSession.builder.master("local[2]").appName("compare")
    settings = {
        **spark_conf(),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
    }
    prefix = f"spark.sql.catalog.{_CATALOG}"
    settings[prefix] = "org.apache.iceberg.spark.SparkCatalog"
    settings |= {f"{prefix}.{key}": value for key, value in lake_catalog_properties.items()}
    builder = builder.config(map=settings)
    with _stderr_to(log):
        session: SparkSession = builder.getOrCreate()
    return session


def compare(spark: SparkSession, expected: Mapping[str, pa.Table], scratch: Path) -> list[Comparison]:
    """Compare each table, in the order of `TABLES`. The expected rows are written to Parquet files in `scratch`."""
    return [_compare(spark, table.name, expected[table.name], scratch) for table in TABLES]


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Let processes that are started inside the block inherit `log` as their standard error."""
    before = os.dup(sys.stderr.fileno())
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    try:
        yield
    finally:
        os.dup2(before, sys.stderr.fileno())
        os.close(before)


def _compare(spark: SparkSession, name: str, expected: pa.Table, scratch: Path) -> Comparison:
    file = scratch / f"{name}.parquet"
    pa.parquet.write_table(expected, file)
    columns = ", ".join(f"`{column}`" for column in expected.column_names)
    spark.catalog.clearCache()
    spark.read.parquet(str(file)).createOrReplaceTempView("expected")
    spark.sql(f"REFRESH TABLE {_CATALOG}.{DATABASE}.{name}")
    spark.sql(f"SELECT {columns} FROM {_CATALOG}.{DATABASE}.{name}").createOrReplaceTempView("actual")
    rows_in_lake = spark.table("actual").count()
    missing = spark.sql(f"SELECT {columns} FROM expected EXCEPT ALL SELECT {columns} FROM actual").count()
    unexpected = spark.sql(f"SELECT {columns} FROM actual EXCEPT ALL SELECT {columns} FROM expected").count()
    return Comparison(name, expected.num_rows, rows_in_lake, missing, unexpected)
