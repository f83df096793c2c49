"""What the first round of an application would load and wait for, loaded before a table is claimed for it."""

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
    """Starts local Python workers and has the JVM load Iceberg, both at once; returns when both are done.

    What goes wrong here is logged for who debugs it: the first round will meet it, and tell.
    """
    steps: list[Callable[[], None]] = [lambda: rehearse_commit(spark)]
    if is_local(spark.sparkContext.master):
        steps.append(lambda: _start_workers(spark.sparkContext))
    with ThreadPoolExecutor(len(steps), thread_name_prefix="fluss-tiering-warm-up") as threads:
        for done in [threads.submit(step) for step in steps]:
            if error := done.exception():
                logger.debug("warming up", exc_info=error)


def _start_workers(context: SparkContext) -> None:
    """One for each task that runs at once."""
    context.setJobDescription("start the Python workers")
    count = context.defaultParallelism
    context.parallelize(range(count), count).foreachPartition(_nothing)


def _nothing(_: object) -> None:
    pass
