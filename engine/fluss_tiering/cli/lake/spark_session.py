"""The Spark session of a command, and the lines that say what the command does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from fluss_tiering.cli.common import output
from fluss_tiering.model.table import TableInfo
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
    from fluss_tiering.spark.startup import interrupts, session, shipping  # noqa: PLC0415

    print_start(master)
    with interrupts.ended_by_sigterm(), session.own_session(master) as spark, shipping.shipped(spark.sparkContext):
        yield spark


def print_start(master: str) -> None:
    """Say that Spark starts, which takes some seconds, and minutes if it has to download its packages."""
    download = ". It downloads its packages first" if submit.missing_packages() else ""
    output.print_progress(f"Starting Spark with the master {master}{download} …")


def each_table(what: str, tables: Iterable[TableInfo], do: Callable[[TableInfo], ResultT]) -> list[ResultT]:
    """Do something with each table, and say so before each."""
    from fluss_tiering.spark.startup.interrupts import check_interrupt  # noqa: PLC0415 - Spark, for some commands only

    results = []
    for table in tables:
        output.print_progress(f"{table.path}: {what} …")
        results.append(do(table))
        check_interrupt()
    return results
