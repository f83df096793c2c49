"""The Spark session of a command, and the lines that say what the command does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

from fluss_tiering.cli.common import output
from fluss_tiering.model.table import TableInfo
from fluss_tiering.short_times import took
from fluss_tiering.spark import submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ResultT = TypeVar("ResultT")


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """Start a Spark session whose executors have this package, and say so. Raises the errors of `own_session`.

    SIGTERM ends the block as Ctrl-C does, with SystemExit.
    """
    # Spark, for some commands only.
    from fluss_tiering.spark.startup import interrupts, session, workers  # noqa: PLC0415

    with interrupts.ended_by_sigterm(), ExitStack() as stack:
        with starting(master):
            spark = stack.enter_context(session.own_session(master))
        stack.enter_context(workers.shipped(spark.sparkContext))
        yield spark


@contextmanager
def starting(master: str) -> Iterator[None]:
    """Say that Spark starts, which takes some seconds, and minutes if it has to download its packages."""
    download = ". It downloads its packages first" if submit.missing_packages() else ""
    began = time.monotonic()
    with output.busy(f"Starting Spark with the master {master}{download} …"):
        yield
    output.print_progress(f"Spark has started, after {took(round((time.monotonic() - began) * 1000))}")


def each_table(what: str, tables: Iterable[TableInfo], do: Callable[[TableInfo], ResultT]) -> list[ResultT]:
    """Do something with each table, and say so before each."""
    from fluss_tiering.spark.startup.interrupts import check_interrupt  # noqa: PLC0415 - Spark, for some commands only

    results = []
    for table in tables:
        with output.busy(f"{table.path}: {what} …"):
            results.append(do(table))
        check_interrupt()
    return results
