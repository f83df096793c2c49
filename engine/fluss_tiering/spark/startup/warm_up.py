"""Loads what the first round of an application would wait for, before it claims a table."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyspark import SparkContext
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.rehearsal import rehearse_commit
from fluss_tiering.spark.startup.local_workers import is_local

logger = logging.getLogger(__name__)


def warm_up(spark: SparkSession) -> None:
    """Start local Python workers and load Iceberg in the JVM at the same time, and return when both are done.

    A failure here is only logged, for those who debug it: the first round meets it again and reports it.
    """
    steps: list[Callable[[], None]] = [lambda: rehearse_commit(spark)]
    if is_local(spark.sparkContext.master):
        steps.append(lambda: _start_workers(spark.sparkContext))
    with ThreadPoolExecutor(len(steps), thread_name_prefix="fluss-tiering-warm-up") as threads:
        for done in [threads.submit(step) for step in steps]:
            if error := done.exception():
                logger.debug("warming up", exc_info=error)


def _start_workers(context: SparkContext) -> None:
    """Start a worker for each task that runs at the same time."""
    context.setJobDescription("start the Python workers")
    count = context.defaultParallelism
    context.parallelize(range(count), count).foreachPartition(_nothing)


def _nothing(_: object) -> None:
    pass
