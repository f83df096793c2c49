"""Spark jobs over the files of a lake table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fluss_tiering.spark.round.stage import failure_of

_TASKS_PER_CORE: Final = 4

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def for_each(
    spark: SparkSession, items: Sequence[ItemT], do: Callable[[ItemT], ResultT], *, tasks: int | None = None
) -> list[ResultT]:
    """Do something with each item on the executors, and return the results in the order of the items.

    Args:
        do: What is done. It is pickled.
        tasks: How many tasks share the items at most; None for some for each core.

    Raises:
        FlussTieringError: UNKNOWN if a task fails for good.
    """
    if not items:
        return []
    context = spark.sparkContext
    most = _TASKS_PER_CORE * context.defaultParallelism if tasks is None else tasks
    try:
        results: list[ResultT] = context.parallelize(items, min(len(items), most)).map(do).collect()
    except (Py4JError, PySparkException) as error:
        raise failure_of(error) from None
    return results
