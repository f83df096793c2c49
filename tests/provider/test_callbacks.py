"""What callbacks must never do: raise, or take long. tests/system lets Airflow itself call them."""

from __future__ import annotations

import logging
import socket
import time
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSensorTimeout, AirflowTaskTimeout
from airflow.sdk import DAG, task_group
from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.execution_time.xcom import XCom
from provider_support import AWAY

from airflow_provider_fluss import callbacks
from airflow_provider_fluss.callbacks import release_lease_on_failure
from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.operators.round import FlussTieringOperator


@pytest.fixture
def failed(context):
    """The context of task `work`, which follows `acquire` and failed; the XCom is what the test gives."""

    def make(xcom: object) -> dict:
        with DAG("dag") as dag:
            acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=["db.t"])
            other = FlussAcquireKvSnapshotLeaseOperator(task_id="other", tables=["db.t"])
            work = BaseOperator(task_id="work")
            acquire >> work
            other >> BaseOperator(task_id="else")
        found = {**context("work"), "dag": dag}

        def xcom_pull(*, task_ids: str, map_indexes: int | None) -> object:
            assert (task_ids, map_indexes) == ("acquire", None)
            return xcom

        return {**found, "ti": SimpleNamespace(**vars(found["ti"]), xcom_pull=xcom_pull)}

    return make


def test_the_lease_of_the_acquire_task_upstream_is_released_and_again(client, new_table, acquire, failed):
    table = new_table()
    lease = acquire(table)
    other = client.acquire_lease("another task's", 60_000, client.list_leases(lease["lease_id"])[0].snapshots)
    release_lease_on_failure(failed(lease))
    assert client.list_leases(lease["lease_id"]) == []
    assert client.list_leases(other.lease_id)
    release_lease_on_failure(failed(lease))


def test_in_a_mapped_group_the_lease_of_the_same_index_is_released(client, new_table, acquire, context):
    lease = acquire(new_table())
    with DAG("dag") as dag:

        @task_group
        def tier(tables):
            FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=tables) >> BaseOperator(task_id="work")

        tier.expand(tables=[["db.first"], ["db.second"]])
    asked = []

    def xcom_pull(*, task_ids: str, map_indexes: int | None) -> object:
        asked.append((task_ids, map_indexes))
        return lease

    found = context("tier.work")
    found["ti"] = SimpleNamespace(**{**vars(found["ti"]), "map_index": 1}, xcom_pull=xcom_pull)
    release_lease_on_failure({**found, "dag": dag})

    assert asked == [("tier.acquire", 1)]
    assert client.list_leases(lease["lease_id"]) == []


@pytest.mark.parametrize("xcom", [None, {}, "text", {"lease_id": "of an old format"}])
def test_nothing_to_release_is_no_error(failed, xcom):
    release_lease_on_failure(failed(xcom))


@pytest.mark.parametrize("context", [{}, {"reason": "failed"}, {"dag": None, "ti": None, "run_id": None}])
def test_a_context_that_holds_nothing_is_no_error(context, caplog):
    with caplog.at_level(logging.ERROR, "airflow_provider_fluss.callbacks"):
        release_lease_on_failure(context)
    assert "could not be read" in caplog.text


# D60
def test_a_task_with_a_lease_of_its_own_releases_that_and_no_newer_one(client, new_table, acquire, driver, failed):
    table = new_table()
    older = acquire(table)
    driver.fail_round(older, table, "disk full")
    newer = acquire(table)
    claim = driver.claim(newer, table)
    release_lease_on_failure({**failed(newer), "task": SimpleNamespace(lease=older)})
    assert client.list_leases(newer["lease_id"])
    driver.finish(claim)
    release_lease_on_failure({**failed(None), "task": SimpleNamespace(lease=newer)})
    assert client.list_leases(newer["lease_id"]) == []


@pytest.mark.parametrize(
    ("exception", "ended"),
    [
        (AirflowSensorTimeout("not all tables were tiered within 3 s"), "timed out"),
        (AirflowTaskTimeout("Timeout"), "timed out"),
        (AirflowFailException("disk full"), "failed"),
        (None, "failed"),
    ],
)
def test_the_reason_tells_time_outs_from_failures(client, new_table, acquire, driver, failed, exception, ended):  # D70
    table = new_table()
    lease = acquire(table)
    driver.claim(lease, table)
    context = failed(lease)
    release_lease_on_failure({**context, **({} if exception is None else {"exception": exception})})
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert outcome.cancelled_reason == f"task work of DAG run {context['run_id']} {ended}"


@pytest.mark.parametrize("map_index", [-1, 2])
def test_the_operator_for_all_releases_its_lease_although_its_process_was_killed(
    client, new_table, acquire, context, map_index
):
    lease = acquire(new_table())
    with DAG("dag") as dag:
        before = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=["db.other"])
        one_task = FlussTieringOperator(task_id="one_task", tables=["db.t"])
        before >> one_task
    asked = []

    def xcom_pull(*, task_ids: str, map_indexes: int | None, key: str) -> object:
        asked.append((task_ids, map_indexes, key))
        return lease

    found = context("one_task")
    found["ti"] = SimpleNamespace(**{**vars(found["ti"]), "map_index": map_index}, xcom_pull=xcom_pull)
    # The DAG processor knows the task as the DAG file has it, which has no lease.
    release_lease_on_failure({**found, "dag": dag, "task": one_task})
    assert asked == [("one_task", None if map_index < 0 else map_index, "lease")]
    assert client.list_leases(lease["lease_id"]) == []


@pytest.fixture
def run_failed(context, monkeypatch):
    """The context of the failed run of a DAG, with the XComs that the test gives: (task id, key) -> values."""

    def make(xcoms: dict[tuple[str, str], list[object]]) -> dict:
        with DAG("dag") as dag:
            acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=["db.t"])
            FlussTieringOperator(task_id="one_task", tables=["db.t"])
            release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
            acquire >> BaseOperator(task_id="work") >> release.as_teardown(setups=acquire, on_failure_fail_dagrun=True)

        def get_all(*, key: str, dag_id: str, task_id: str, run_id: str) -> list[object] | None:
            return xcoms.get((task_id, key))

        monkeypatch.setattr(XCom, "get_all", get_all)
        return {"dag": dag, "run_id": context("work")["run_id"], "reason": "task_failure"}

    return make


def test_the_callback_of_a_dag_releases_the_lease_of_the_operator_for_all(client, new_table, acquire, run_failed):
    first, second = acquire(new_table()), acquire(new_table())
    release_lease_on_failure(
        run_failed({("acquire", "return_value"): [first], ("one_task", "lease"): [second], ("work", "lease"): [{}]})
    )
    assert client.list_leases(first["lease_id"]) == []
    assert client.list_leases(second["lease_id"]) == []


@pytest.mark.parametrize(
    ("states", "is_held"),
    [
        ({"acquire": "success", "work": "failed", "release": "success"}, False),
        # A person marked the run as failed, and its teardown runs.
        ({"acquire": "success", "work": "skipped", "release": "running"}, False),
        ({"acquire": "success", "work": "upstream_failed"}, False),
        ({"acquire": "success", "work": None, "release": None}, True),
        ({"acquire": "running", "work": None}, True),
        ({"acquire": "success", "work": "deferred"}, True),
        ({"acquire": "success", "work": "running"}, True),
    ],
)
def test_a_late_callback_of_a_dag_leaves_the_leases_of_a_run_that_was_cleared(
    client, new_table, acquire, run_failed, task_states, states, is_held
):
    lease = acquire(new_table())
    task_states.update(states)
    release_lease_on_failure(run_failed({("acquire", "return_value"): [lease]}))
    assert bool(client.list_leases(lease["lease_id"])) is is_held
    cancelled = client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason
    assert (cancelled is None) is is_held


def test_a_server_that_does_not_answer_costs_five_seconds_for_all_leases_and_no_error(monkeypatch, caplog):  # D69
    with socket.create_server(("127.0.0.1", 0)) as hung:  # accepts, and says nothing
        monkeypatch.setenv("AIRFLOW_CONN_AWAY", f"fluss://127.0.0.1:{hung.getsockname()[1]}?timeout=60")
        leases = [{**AWAY, "lease_id": str(number)} for number in range(5)]
        monkeypatch.setattr(callbacks, "_xcoms_of_run", lambda _: iter(leases))
        started = time.monotonic()
        with caplog.at_level(logging.WARNING, "airflow_provider_fluss.callbacks"):
            dag = SimpleNamespace(dag_id="dag", tasks=[])
            release_lease_on_failure({"dag": dag, "run_id": "run", "reason": "task_failure"})
    # Five leases at five seconds each would take 25 s, and one with the timeout of the connection 60 s.
    assert time.monotonic() - started < 20
    assert "took longer than 5 s" in caplog.text or "ends when it expires" in caplog.text
