"""The links of tasks: where they lead, and when they are stored."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fluss import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussTieringSparkOperator,
    FlussTieringStatusSensor,
    links,
)
from airflow_provider_fluss.links import LakeTieringLink, SparkUiLink, notice_spark_ui

LEASE = {
    "lease_id": "lease",
    "attempt_token": 7,
    "tables": ["shop.orders"],
    "lease_duration_ms": 1000,
    "fluss_conn_id": "fluss_other",
}


class Context(dict):
    """A task's context that keeps what is pushed to XCom."""

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}
        super().__init__(ti=SimpleNamespace(xcom_push=lambda key, value: self.pushed.update({key: value})))


@pytest.fixture(autouse=True)
def _base_url(monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://host.example:8443/deep/airflow/")


def operators(lease: object) -> list[Any]:
    return [
        FlussTieringSparkOperator(task_id="submit", lease=lease),
        FlussTieringStatusSensor(task_id="wait", lease=lease),
    ]


@pytest.fixture(autouse=True)
def airflow_with_frames(monkeypatch):
    """Any version of Airflow that runs these tests stands for one that shows every page of a plugin in its frame."""
    monkeypatch.setattr(links, "airflow_version", "3.3.2")


@pytest.mark.parametrize("operator", operators(LEASE), ids=lambda each: each.task_id)
def test_a_task_of_one_table_leads_to_its_history_before_it_runs(operator):
    context = Context()
    operator.pre_execute(context)
    assert context.pushed == {
        "_link_LakeTieringLink": "plugin/lake-tiering/deep/airflow/lake-tiering/table?"
        "conn=fluss_other&table=shop.orders"
    }


def test_a_task_of_many_tables_leads_to_the_list_of_them():
    acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=["a.b&c", "d.e"], fluss_conn_id="f")
    address = urlsplit(LakeTieringLink().get_link(acquire, ti_key=None))
    assert address.path == "plugin/lake-tiering/deep/airflow/lake-tiering/"
    assert parse_qsl(address.query) == [("conn", "f"), ("tables", "a.b&c"), ("tables", "d.e")]


def test_before_airflow_3_3_the_page_is_shown_alone(monkeypatch):
    monkeypatch.setattr(links, "airflow_version", "3.1.8")
    assert links.tables_href(["a.b"], "f") == "lake-tiering/table?conn=f&table=a.b"


@pytest.mark.parametrize("lease", [None, {}, {"tables": []}, {"tables": "a.b"}, "text", 7])
def test_a_task_whose_tables_are_not_known_has_no_link(lease):
    for operator in operators(lease):
        context = Context()
        operator.pre_execute(context)
        assert not context.pushed
        assert LakeTieringLink().get_link(operator, ti_key=None) == ""


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-22 20:00:00,000 INFO fluss_tiering: Spark's user interface is at http://host:4040",
        "26/11/22 INFO Utils: Bound SparkUI to 0.0.0.0, and started at http://host:4040",
        "\t tracking URL: http://host:4040\n",
    ],
)
def test_the_address_of_spark_is_stored_while_the_application_runs(line, monkeypatch):
    processed: list[str] = []
    monkeypatch.setattr(SparkSubmitHook, "_process_spark_submit_log", lambda self, lines: processed.extend(lines))
    monkeypatch.setattr(SparkSubmitHook, "_resolve_connection", lambda self: {"master": "local", "deploy_mode": None})
    operator = FlussTieringSparkOperator(task_id="submit", lease=LEASE)
    context = Context()
    operator.pre_execute(context)
    hook = SparkSubmitHook()
    operator.notice_hook(hook)

    def lines():
        yield "first\n"
        yield line
        assert context.pushed["_link_SparkUiLink"] == "http://host:4040"
        yield line.replace("host", "another")

    hook._process_spark_submit_log(lines())
    assert processed == ["first\n", line, line.replace("host", "another")]
    assert context.pushed["_link_SparkUiLink"] == "http://host:4040"
    assert SparkUiLink().get_link(operator, ti_key=None) == "http://host:4040"


@pytest.mark.parametrize(
    ("line", "link"),
    [
        ("INFO fluss_tiering: Spark's user interface is at http://host:4040", ""),
        ("\t tracking URL: http://yarn:8088/proxy/1\n", "http://yarn:8088/proxy/1"),
    ],
)
@pytest.mark.parametrize("status", [0, 1])
def test_a_link_that_leads_nowhere_after_the_application_is_forgotten(
    line, link, status, context, new_table, acquire, spark
):
    lease = acquire(new_table())
    spark(f"print({line!r}); sys.exit({status})")
    operator, running = FlussTieringSparkOperator(task_id="submit", lease=lease), context("submit")
    operator.pre_execute(running)
    with suppress(AirflowException):
        operator.execute(running)
    assert running["ti"].pushed["_link_SparkUiLink"] == (link or "http://host:4040")
    # Airflow asks for the link once more at the end of the task.
    assert SparkUiLink().get_link(operator, ti_key=None) == link


def test_a_task_without_an_application_has_no_link_to_spark():
    found: list[tuple[str, bool]] = []
    hook = SimpleNamespace(_process_spark_submit_log=list)
    notice_spark_ui(hook, lambda *told: found.append(told))
    hook._process_spark_submit_log(["SparkUI is off", "see https://spark.apache.org"])
    assert not found
    assert SparkUiLink().get_link(FlussTieringSparkOperator(task_id="submit", lease=LEASE), ti_key=None) == ""
