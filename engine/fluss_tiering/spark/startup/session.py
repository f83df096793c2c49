"""The Spark session that an application or a command starts for itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkConf
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.catalog import preload
from fluss_tiering.lake.iceberg.java import JAVA_ERRORS, java_error_text
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.startup.local_workers import local_workers_conf
from fluss_tiering.spark.submit import spark_conf


@contextmanager
def own_session(master: str, jvm: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start a Spark session, and stop it when the block ends.

    Args:
        master: Spark's master. Under `spark-submit` the master of its own command line is used.
        jvm: Settings of the session's JVM, if this process starts it.

    Raises:
        FlussTieringError: UNAVAILABLE if Spark does not start.
    """
    builder = SparkSession.builder.appName("fluss-tiering")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # This is not spark-submit, so this process starts the session's JVM. Spark then takes the workers' Python from
        # the environment only.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(master).config(map={**spark_conf(), **(jvm or {})})
    else:
        master = SparkConf().get("spark.master") or master
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    builder = builder.config(map=local_workers_conf(master, python))
    preload()
    try:
        spark = builder.getOrCreate()
    except JAVA_ERRORS as error:
        raise FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"Spark does not start with the master {master!r} ({java_error_text(error)}). "
            "Its own messages above say more. Check that Java 17 or 21 is installed, and that the master is right and "
            "can be reached",
        ) from None
    try:
        yield spark
    finally:
        spark.stop()
