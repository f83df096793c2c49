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
_BROADCAST_THRESHOLD: Final = "spark.sql.autoBroadcastJoinThreshold"
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
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
    with _settings(spark, {_SHUFFLE_PARTITIONS: str(_TASKS_PER_CORE * spark.sparkContext.defaultParallelism)}):
        yield


@contextmanager
def joins_of_any_size(spark: SparkSession) -> Iterator[None]:
    """Let Spark join the names of any number of files, for the time of the block.

    Spark would hold one side of a join in memory if it is small while it is compressed, and names of files take many
    times as much. An adaptive plan also returns as soon as one side is found to be empty, and leaves the tasks of the
    other one running. Settings that the session was given are kept.
    """
    with shuffles_of_its_size(spark), _settings(spark, {_BROADCAST_THRESHOLD: "-1", _ADAPTIVE: "false"}):
        yield


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set what the session was not given, and set it back at the end."""
    given = spark.sparkContext.getConf()
    chosen = {key: value for key, value in settings.items() if not given.contains(key)}
    before = {key: spark.conf.get(key) for key in chosen}
    for key, value in chosen.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        # Ctrl-C in a terminal ends the JVM, too. What led here is then the one to report.
        with suppress(*JAVA_ERRORS, OSError):
            for key, value in before.items():
                spark.conf.set(key, value)


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
