"""Drivers whose Spark ends by itself: they end, too, and their tables are not blamed."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine_fixtures import client, server
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.ended import tells_end_of_spark

__all__ = ["client", "server"]


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
