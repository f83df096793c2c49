"""The task that submits, and its log: each line at its own level, and more lines of ours than of Spark's."""

from __future__ import annotations

import logging

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_fluss.operators.submit_log import keep_levels
from airflow_provider_fluss.submit_task import SubmitTask
from airflow_provider_fluss.task_states import TaskInstanceKey

KEY = TaskInstanceKey("d", "r", "submit", 2)


def watch(now: list[float]) -> SubmitTask:
    return SubmitTask(KEY, 60, monotonic=lambda: now[0])


def mapped(state: str | None) -> dict[str, str | None]:
    return {"submit_1": "running", "submit_2": state}


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "skipped", "removed"])
def test_an_end_without_success_is_final(state):
    seen = watch([0]).seen_in(mapped(state))
    assert seen.ended
    assert seen.claims_over
    assert state in seen.words


@pytest.mark.parametrize(
    "state",
    [None, "scheduled", "queued", "running", "up_for_retry", "up_for_reschedule", "restarting", "deferred"],
)
def test_a_task_that_may_still_submit_is_waited_for(state):  # D61
    seen = watch([0]).seen_in(mapped(state))
    assert not seen.ended
    assert not seen.claims_over
    assert (state or "scheduler") in seen.words


def test_before_a_mapped_task_is_expanded_its_instance_has_no_index():
    assert watch([0]).seen_in({"submit": "upstream_failed"}).ended
    assert not watch([0]).seen_in({}).ended


def test_a_submitted_application_has_the_claim_timeout_to_claim():
    now = [0.0]
    task = watch(now)
    assert not task.counts_down
    for now[0], over in ((0, False), (60, False), (61, True)):
        seen = task.seen_in(mapped("success"))
        assert seen.ended
        assert seen.claims_over is over
        assert task.counts_down
    assert seen.words == "success 61 s ago"


def test_a_cleared_submit_starts_over():
    now = [0.0]
    task = watch(now)
    task.seen_in(mapped("success"))
    now[0] = 50
    task.seen_in(mapped("running"))
    assert not task.counts_down
    now[0] = 100
    assert not task.seen_in(mapped("success")).claims_over


def test_arguments_make_the_same_watch_in_the_triggerer():
    kwargs = watch([0]).to_kwargs()
    assert SubmitTask.from_kwargs(kwargs).to_kwargs() == kwargs
    assert kwargs == {"dag_id": "d", "run_id": "r", "task_id": "submit", "map_index": 2, "claim_timeout": 60}


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
