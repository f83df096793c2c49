"""The provider under a real scheduler, triggerer and DAG processor, and the links of the tasks of a round."""

from __future__ import annotations

import os
import re
import signal
from urllib.parse import quote

import pytest

from airflow_provider_fluss.plugins.route import ROUTE
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState, TieringStats
from waiting import wait_until


def claim(stack, lease: dict, table: str) -> Claim:
    (claimed,) = stack.client.claim_tables([TablePath.parse(table)], lease["lease_id"], lease["attempt_token"], "test")
    assert not isinstance(claimed, FlussTieringError), claimed
    return claimed


def test_the_sensor_fails_with_the_last_error_and_the_lease_is_released(stack, new_table):  # S10
    table, good = new_table(), new_table()
    run = stack.start("waits_for_round", table, good)
    wait_until(lambda: stack.states("waits_for_round", run)["wait"] == "deferred", every=0.3)
    lease = stack.airflow.xcom("waits_for_round", run, "acquire")
    assert stack.client.list_leases(lease["lease_id"])
    claimed = claim(stack, lease, table)
    failed = HeartbeatEntry(claimed.table_id, claimed.tiering_epoch, "catalog: no space left on device")
    stack.client.heartbeat(failed=[failed])
    other = claim(stack, lease, good)
    stack.client.heartbeat(finished=[HeartbeatEntry(other.table_id, other.tiering_epoch, stats=TieringStats())])
    assert stack.airflow.wait_for_run("waits_for_round", run) == "failed"
    log = stack.airflow.task_log("waits_for_round", run, "wait")
    assert f"{table} (epoch {claimed.tiering_epoch}): catalog: no space left on device" in log
    assert stack.states("waits_for_round", run) == {"acquire": "success", "wait": "failed", "release": "success"}
    assert stack.client.list_leases(lease["lease_id"]) == []


@pytest.mark.long
def test_a_retried_task_finds_the_same_lease(stack, new_table):  # L17, L22
    run = stack.start("retried", new_table())
    assert stack.airflow.wait_for_run("retried", run) == "success"
    lease = stack.airflow.xcom("retried", run, "acquire")
    tries = [stack.airflow.task_log("retried", run, "acquire", number) for number in (1, 2)]
    assert stack.airflow.task_state("retried", run, "acquire").try_number == 2
    assert f"Acquired lease {lease['lease_id']} (attempt token {lease['attempt_token']})" in tries[0]
    assert f"with the attempt token {lease['attempt_token']}, because" in tries[1]
    # What is downstream reads the lease of the try that succeeded, in each of its own tries.
    assert stack.airflow.task_state("retried", run, "submit").try_number == 2
    assert stack.airflow.xcom("retried", run, "submit") == lease
    assert stack.client.list_leases(lease["lease_id"]) == []


def test_a_submit_killed_on_its_last_try_ends_the_waiting_and_leaves_no_lease(stack, new_table):  # L13
    run = stack.start("killed", new_table())
    wait_until(lambda: stack.states("killed", run)["wait"] == "deferred", every=0.3)
    wait_until(lambda: stack.states("killed", run)["submit"] == "running", every=0.3)
    lease = stack.airflow.xcom("killed", run, "acquire")
    assert stack.client.list_leases(lease["lease_id"])
    process = stack.airflow.task_state("killed", run, "submit").pid
    assert process
    os.kill(process, signal.SIGKILL)
    assert stack.airflow.wait_for_run("killed", run) == "failed"
    assert stack.states("killed", run) == {
        "acquire": "success",
        "submit": "failed",
        "wait": "failed",
        "release": "success",
    }
    assert "were never claimed" in stack.airflow.task_log("killed", run, "wait")
    assert stack.client.list_leases(lease["lease_id"]) == []


@pytest.mark.long
def test_the_sensor_leaves_the_only_slot_to_its_submit(stack, new_table):  # E11
    run = stack.start("takes_one_slot", new_table())
    assert stack.airflow.wait_for_run("takes_one_slot", run) == "success"
    (outcome,) = stack.airflow.xcom("takes_one_slot", run, "wait")
    assert outcome["status"] == "Tiered"


@pytest.mark.long
def test_a_failed_tasks_callback_releases_its_lease(stack, new_table):
    run = stack.start("task_callback_without_teardown", new_table())
    assert stack.airflow.wait_for_run("task_callback_without_teardown", run) == "failed"
    lease = stack.airflow.xcom("task_callback_without_teardown", run, "acquire")
    wait_until(lambda: not stack.client.list_leases(lease["lease_id"]))


@pytest.mark.long
def test_a_failed_runs_callback_in_the_dag_processor_releases_all_its_leases(stack, new_table):
    dag_id = "dag_callback_without_teardown"
    run = stack.start(dag_id, new_table(), new_table())
    assert stack.airflow.wait_for_run(dag_id, run) == "failed"
    leases = [stack.airflow.xcom(dag_id, run, "acquire", index)["lease_id"] for index in (0, 1)]
    assert len(set(leases)) == 2
    wait_until(lambda: not any(stack.client.list_leases(each) for each in leases))


@pytest.mark.long
def test_tasks_lead_to_their_table_and_to_the_spark_that_tiered_it(stack, new_table):
    table = new_table(primary_key=False, freshness="1s")
    wait_until(lambda: stack.client.list_tiering_statuses(TablePath.parse(table))[0].state is TieringState.PENDING)
    stack.airflow.wait_for_dag("fluss_tiering")
    run = stack.airflow.trigger("fluss_tiering")
    assert stack.airflow.wait_for_run("fluss_tiering", run, 240) == "success"
    links = {
        task: stack.airflow.links("fluss_tiering", run, f"tier.{task}", 0) for task in ("acquire", "submit", "wait")
    }
    (address,) = {each["Lake tiering"] for each in links.values()}
    assert address == f"plugin/{ROUTE}/{ROUTE}/table?conn=fluss_default&table={table}"
    page = stack.airflow.page(address.removeprefix(f"plugin/{ROUTE}/"))
    assert f"<h2>{table}</h2>" in page.replace("<wbr>", "")
    # The round leads back to the task that submitted its application, and to Spark.  # E31
    log = f"../dags/fluss_tiering/runs/{quote(run, safe='')}/tasks/tier.submit/mapped/0?try_number=1"
    assert f'href="{log}"' in page
    assert re.search(r'href="http://[\w.-]+:\d+" title="Spark', page)
    assert re.search(r"Rows of each round: \d+ rounds?, 0 of them failed; the highest value is 1,000", page)
    # The application is over, and so is its user interface.
    assert not links["submit"]["Spark"]
    assert links["acquire"].keys() == links["wait"].keys() == {"Lake tiering"}
