"""Calls Iceberg's own procedures on a lake table, through Spark SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from pyspark.sql import Row, SparkSession

from fluss_tiering.lake.iceberg.java import JAVA_ERRORS
from fluss_tiering.lake.names import catalog_name, quoted
from fluss_tiering.model.table import TableInfo

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_TASKS_PER_CORE: Final = 2

Argument: TypeAlias = str | bool | int | Mapping[str, str]


def call_procedure(spark: SparkSession, table: TableInfo, procedure: str, **arguments: Argument) -> list[Row]:
    """Call a procedure of the table's catalog and return its rows. The caller handles exceptions with `lake_errors`."""
    catalog = quoted(catalog_name(table.lake_catalog_properties))
    # Iceberg would take the database for the name of a catalog first, and log the failure with its stack trace.
    name = f"{catalog}.{quoted(table.lake_path.database)}.{quoted(table.lake_path.table)}"
    given: Mapping[str, Argument] = {"table": name, **arguments}
    named = ", ".join(f"{name} => {_literal(value)}" for name, value in given.items())
    with shuffles_of_its_size(spark):
        return list(spark.sql(f"CALL {catalog}.system.{procedure}({named})").collect())


@contextmanager
def shuffles_of_its_size(spark: SparkSession) -> Iterator[None]:
    """Let Spark's shuffles have as many partitions as its cores need, for the time of the block.

    A procedure makes a task for each of them. Spark's default is 200 in every step, even for a small table. A number
    that the session was given is kept.
    """
    if spark.sparkContext.getConf().contains(_SHUFFLE_PARTITIONS):
        yield
        return
    before = spark.conf.get(_SHUFFLE_PARTITIONS)
    spark.conf.set(_SHUFFLE_PARTITIONS, str(_TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    try:
        yield
    finally:
        # Ctrl-C in a terminal ends the JVM, too. What led here is then the one to report.
        with suppress(*JAVA_ERRORS, OSError):
            spark.conf.set(_SHUFFLE_PARTITIONS, before)


def _literal(value: Argument) -> str:
    """Return the value as SQL. Only Spark 4.1 takes named parameters in CALL."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return _text(value)
    return f"MAP({', '.join(_text(text) for item in value.items() for text in item)})"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
