"""Iceberg's own actions on a lake table through its Java API, which needs no Spark table.

Spark opens no Iceberg table with a TIME column, so that no SQL procedure can be called on it. These actions only look
at metadata, and work for every table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.java import JAVA_ERRORS, java_session_of
from fluss_tiering.lake.iceberg.library import JavaTable, ask
from fluss_tiering.lake.shared_folder import local_path

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_BROADCAST_THRESHOLD: Final = "spark.sql.autoBroadcastJoinThreshold"
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_TASKS_PER_CORE: Final = 2


def expire(spark: SparkSession, table: JavaTable, snapshot_ids: Sequence[int]) -> int:
    """Expire exactly these snapshots, delete the files that only they need, and return how many were deleted.

    Nothing is expired if the metadata of the current snapshot cannot be read, since the older ones may then be all that
    readers have. Whether its data files are there is not looked at.

    Args:
        table: The table, as it is now.

    Raises:
        FlussTieringError: CORRUPT_DATA if a metadata file of the current snapshot is missing or damaged.
        Py4JError: The errors of the JVM.
        PySparkException: The errors of the JVM.
    """
    with joins_of_any_size(spark):
        return int(ask(table, "expire", java_session_of(spark), snapshot_ids))


def unreferenced_files(spark: SparkSession, table: JavaTable, location: str, older_than_ms: int) -> list[str]:
    """Return the files of a folder that are older and that no snapshot of the table refers to, in order.

    Errors are those of the JVM.
    """
    asked = {"folder": location, "olderThanMs": older_than_ms, "byPrefix": local_path(location) is None}
    with joins_of_any_size(spark):
        return list(ask(table, "unreferenced", java_session_of(spark), asked))


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
