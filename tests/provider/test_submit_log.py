"""The log of a submit task: each line at its own level, and more lines of ours than of Spark's."""

from __future__ import annotations

import logging

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_fluss.operators.submit_log import keep_levels

# What spark-submit of Spark 4.1 printed for a round of one table.
OUTPUT = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/22 23:03:50 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1; using 192.0.2.2 instead
26/11/22 23:03:50 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
26/11/22 23:03:53 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform... using builtin-java
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/22 23:04:08 INFO SparkContext: Running Spark version 4.1.3
26/11/22 23:04:09 INFO SparkContext: OS info Linux, 6.18.44, amd64
26/11/22 23:04:09 INFO SparkContext: Java version 17.0.15+6
Setting Spark log level to "WARN".
26/11/22 23:04:16 WARN Utils: Service 'SparkUI' could not bind on port 4040. Attempting port 4041.
2026-11-22 23:04:59,106 INFO fluss_tiering: Spark's user interface is at http://192.0.2.2:4041
2026-11-22 23:04:59,119 INFO fluss_tiering: shop.orders: claiming
2026-11-22 23:05:01,147 INFO fluss_tiering: shop.orders: reading and writing in 1 tasks (100 % done)
26/11/22 23:05:01 WARN FairSchedulableBuilder: A job was submitted with scheduler pool table-13, which has not been
2026-11-22 23:05:02,210 WARNING fluss_tiering.spark.retry: the stream of tiering statuses broke: trying again
26/11/22 23:05:03 WARN TaskSetManager: Lost task 0.0 in stage 0.0
2026-11-22 23:05:08,355 ERROR fluss_tiering: shop.orders: Failed: the lake table is somebody else's
26/11/22 23:05:09 ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0)
\tat org.apache.spark.scheduler.Task.run(Task.scala:141)
"""


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_LOG", "spark://local")
    hook = SparkSubmitHook(conn_id="spark_log")
    hook._log = logging.getLogger("hook")
    keep_levels(hook)
    with caplog.at_level(logging.DEBUG, "hook"):
        hook._process_spark_submit_log(iter(OUTPUT.splitlines()))
    return [(each.levelno, each.getMessage()) for each in caplog.records]


def test_each_line_is_logged_once(logged: list[tuple[int, str]]) -> None:
    assert [message for _, message in logged] == [line.strip() for line in OUTPUT.splitlines()]


def test_lines_keep_their_levels(logged: list[tuple[int, str]]) -> None:
    levels = {message: level for level, message in logged}
    for begin, level in {
        "2026-11-22 23:04:59,119 INFO": logging.INFO,
        "2026-11-22 23:05:02,210 WARNING": logging.WARNING,
        "26/11/22 23:05:03 WARN TaskSetManager": logging.WARNING,
        "2026-11-22 23:05:08,355 ERROR": logging.ERROR,
        "26/11/22 23:05:09 ERROR Executor": logging.ERROR,
        "at org.apache.spark": logging.INFO,
        "26/11/22 23:04:08 INFO SparkContext: Running": logging.DEBUG,
    }.items():
        assert [found for message, found in levels.items() if message.startswith(begin)] == [level], begin


def test_at_least_half_of_what_is_shown_is_ours(logged: list[tuple[int, str]]) -> None:
    shown = [message for level, message in logged if level >= logging.INFO and "TaskSet" not in message]
    of_the_round = [message for message in shown if "Executor" not in message and not message.startswith("at ")]
    assert [message for message in of_the_round if "fluss_tiering" not in message] == []
