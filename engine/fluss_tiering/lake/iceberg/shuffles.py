"""Settings of Spark for Iceberg's own actions on a lake table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.java import JAVA_ERRORS

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_BROADCAST_THRESHOLD: Final = "spark.sql.autoBroadcastJoinThreshold"
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_TASKS_PER_CORE: Final = 2


@contextmanager
def shuffles_of_its_size(spark: SparkSession) -> Iterator[None]:
    """Let Spark's shuffles have as many partitions as its cores need, for the time of the block.

    An action makes a task for each of them. Spark's default is 200 in every step, even for a small table. A number
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
