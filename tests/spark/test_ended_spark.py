"""Drivers whose Spark ends by itself: they end, too, and their tables are not blamed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_support import driver_environment

from engine_fixtures import client, server
from engine_support import ServerProcess, new_table, put
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.spark.ended import tells_end_of_spark
from waiting import WAIT_S, wait_until

__all__ = ["client", "server"]

COMMAND = str(Path(sys.executable).with_name("fluss-tiering"))
TABLES = 4


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("busy", [True, False], ids=["in rounds", "idle"])
@pytest.mark.long
def test_a_drain_ends_when_its_jvm_is_killed(
    server: ServerProcess, client: TieringClient, spark_jars: str, tmp_path: Path, busy: bool
) -> None:
    tables = [new_table(client, [1, 2], freshness="1s") for _ in range(TABLES)]
    paths = [table.path for table in tables]
    messages = tmp_path / "messages"
    with messages.open("wb") as written:
        driver = subprocess.Popen(
            [COMMAND, "tier", "--server", server.target, "--drain", "--follow", *map(str, paths)],
            env=driver_environment(),
            stdout=subprocess.DEVNULL,
            stderr=written,
        )
    try:
        wait_until(lambda: any(each.last_tiered_time for each in statuses(client, paths)))
        if not busy:
            set_freshness(client, paths, "1h")
            wait_until(lambda: {each.state for each in statuses(client, paths)} == {TieringState.SCHEDULED})
        jvm = next(each for each in psutil.Process(driver.pid).children(recursive=True) if each.name() == "java")
        os.kill(jvm.pid, signal.SIGKILL)
        if not busy:
            # The next table that becomes Pending shows it, which takes something new to tier.
            for table in tables:
                put(client, table, {3: "new"})
            set_freshness(client, paths, "1s")
        assert driver.wait(WAIT_S) == 3
    finally:
        driver.kill()
        driver.wait()
    told = messages.read_text()
    assert "Spark has ended by itself" in told
    # py4j itself logs the call that was broken off.
    assert "failed unexpectedly" not in told, told
    assert {each.consecutive_failures for each in statuses(client, paths)} == {0}  # D64
    rounds = [each for path in paths for each in client.list_tiering_rounds(path)]
    assert all(each.interrupted for each in rounds if each.state is TieringState.FAILED)
    assert [each for each in client.list_leases() if each.snapshots] == []


_LOSES_ITS_JVM = """
import os, signal, sys
from contextlib import nullcontext
from pyspark import SparkContext
from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.spark.startup.session import own_session

try:
    with own_session("local[1]") as spark:
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        with lake_errors("read the lake") if sys.argv[1] == "in the lake" else nullcontext():
            spark.sparkContext.parallelize([0]).count()
except FlussTieringError as error:
    print(error.message, file=sys.stderr)
    sys.exit(1)
"""


@pytest.mark.long
@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("where", ["in a job", "in the lake"])
def test_a_program_whose_jvm_is_killed_says_so_in_one_line(spark_jars: str, where: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOSES_ITS_JVM, where],
        env=driver_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Spark has ended by itself"), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    "failure",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("org.apache.spark.api.python.PythonUtils does not exist in the JVM"),
        PySparkException("Job 3 cancelled because SparkContext was shut down"),
        PySparkException("Cannot call methods on a stopped SparkContext."),
    ],
    ids=str,
)
def test_what_tells_that_spark_ends(failure: Exception) -> None:  # D64
    assert tells_end_of_spark(failure)
    assert tells_end_of_spark(wrapped(failure)), "our own error, as the lake and the stage raise it"


@pytest.mark.parametrize(
    "failure",
    [
        FlussTieringError(ErrorCode.STORAGE, "the JVM refused: SparkContext was shut down"),
        ValueError("does not exist in the JVM"),
        Py4JError("no such table"),
        PySparkException("Job aborted due to stage failure: java.util.concurrent.RejectedExecutionException"),
    ],
    ids=str,
)
def test_what_tells_nothing_of_spark(failure: Exception) -> None:  # D64
    assert not tells_end_of_spark(failure)
    assert not tells_end_of_spark(wrapped(failure))


def test_an_executor_service_of_the_jvm_that_shuts_down_tells_it(spark: SparkSession) -> None:  # D64
    jvm: Any = spark.sparkContext._jvm
    service = jvm.java.util.concurrent.Executors.newSingleThreadExecutor()
    service.shutdown()
    with pytest.raises(Py4JJavaError) as refused:
        service.submit(jvm.java.lang.Thread())
    assert tells_end_of_spark(refused.value)


def test_a_task_that_fails_does_not_tell_it_whatever_its_text_says(spark: SparkSession) -> None:  # D64
    def fail(_: object) -> object:
        raise RuntimeError("java.util.concurrent.RejectedExecutionException: SparkContext was shut down")

    with pytest.raises((Py4JError, PySparkException)) as failed:
        spark.sparkContext.parallelize([1], 1).map(fail).collect()
    assert "RejectedExecutionException" in str(failed.value)
    assert not tells_end_of_spark(failed.value)


def wrapped(failure: Exception) -> FlussTieringError:
    """Return an error of ours that was raised because of another."""
    try:
        try:
            raise failure
        except type(failure):
            raise FlussTieringError(ErrorCode.UNKNOWN, "a Spark task failed") from None
    except FlussTieringError as error:
        return error


def statuses(client: TieringClient, paths: Sequence[TablePath]) -> list[TieringStatus]:
    return [each for each in client.list_tiering_statuses() if each.path in paths]


def set_freshness(client: TieringClient, paths: Sequence[TablePath], freshness: str) -> None:
    for path in paths:
        client.alter_table(path, {"table.datalake.freshness": freshness})
