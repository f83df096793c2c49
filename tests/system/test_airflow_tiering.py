"""The example DAGs as they are, under a real Airflow, with Spark and Iceberg."""

from __future__ import annotations

import json
import os
import signal
import time

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from waiting import wait_until

EXPECTED = pa.table({"id": range(1000), "name": [f"name {i}" for i in range(1000)]})


def catalog_of(stack, table: str) -> SqlCatalog:
    """The catalog that the table is tiered into, opened by another reader than ours."""
    (info,) = stack.client.get_tables([TablePath.parse(table)])
    properties = info.lake_catalog_properties
    uri = properties["uri"].removeprefix("jdbc:").split("?")[0].replace("sqlite:", "sqlite:///")
    return SqlCatalog(properties["name"], uri=uri, warehouse=properties["warehouse"])


def rows_in_lake(stack, table: str) -> pa.Table:
    rows = catalog_of(stack, table).load_table(table).scan(selected_fields=("id", "name")).to_arrow()
    return rows.sort_by("id").cast(EXPECTED.schema)


def pending(stack, *tables: str) -> None:
    def all_pending() -> bool:
        states = {str(each.path): each.state for each in stack.client.list_tiering_statuses()}
        return all(states[table] is TieringState.PENDING for table in tables)

    wait_until(all_pending)


@pytest.mark.long
def test_without_a_pending_table_nothing_is_done_and_nothing_fails(stack):
    stack.airflow.wait_for_dag("fluss_tiering")
    run = stack.airflow.trigger("fluss_tiering")
    assert stack.airflow.wait_for_run("fluss_tiering", run) == "success"
    assert set(stack.states("fluss_tiering", run).values()) == {"skipped"}


def test_all_pending_tables_are_tiered_by_one_application_while_the_sensor_is_deferred(stack, new_table):
    keyed, log = new_table(freshness="1s"), new_table(primary_key=False, freshness="1s")
    pending(stack, keyed, log)
    run = stack.airflow.trigger("fluss_tiering")
    seen = set()
    while (state := stack.airflow.run_state("fluss_tiering", run)) not in ("success", "failed"):
        now = stack.states("fluss_tiering", run)
        (status,) = stack.client.list_tiering_statuses(TablePath.parse(keyed))
        seen.add((now.get("tier.submit"), now.get("tier.wait"), status.state))
        time.sleep(0.2)
    assert state == "success"
    assert ("running", "deferred", TieringState.TIERING) in seen
    lease = stack.airflow.xcom("fluss_tiering", run, "tier.acquire", 0)
    assert set(lease["tables"]) == {keyed, log}
    rounds = stack.airflow.xcom("fluss_tiering", run, "tier.wait", 0)
    assert {(each["table"], each["status"], each["rows"]) for each in rounds} == {
        (keyed, "Tiered", 1000),
        (log, "Tiered", 1000),
    }
    drivers = {each.driver for each in stack.client.list_tiering_rounds(lease_id=lease["lease_id"], limit=1)}
    assert len(drivers) == 1
    assert rows_in_lake(stack, keyed) == EXPECTED
    assert rows_in_lake(stack, log) == EXPECTED
    assert stack.client.list_leases(lease["lease_id"]) == []


@pytest.mark.long
def test_a_table_that_cannot_be_tiered_is_named_and_the_other_is_tiered_all_the_same(stack, new_table):  # S10
    good, bad = new_table(freshness="1s"), new_table(freshness="1s")
    catalog = catalog_of(stack, bad)
    catalog.create_namespace_if_not_exists("system")
    catalog.create_table(bad, Schema(NestedField(1, "somebody_elses", StringType())))
    pending(stack, good, bad)
    run = stack.airflow.trigger("fluss_tiering")
    assert stack.airflow.wait_for_run("fluss_tiering", run) == "failed"
    assert stack.states("fluss_tiering", run) == {
        "pending_batches": "success",
        "tier.acquire": "success",
        "tier.submit": "failed",
        "tier.wait": "failed",
        # It released the lease, and fails for the run, which it decides.
        "tier.release": "failed",
    }
    (failed,) = [
        each for each in stack.client.list_tiering_rounds(TablePath.parse(bad)) if each.state is TieringState.FAILED
    ][:1]
    words = f"1 of 2 tables failed to be tiered: {bad} (epoch {failed.tiering_epoch}): {failed.error.splitlines()[0]}"
    for task_id in ("tier.submit", "tier.wait"):
        assert json.dumps(words)[1:-1] in (stack.airflow.task_log("fluss_tiering", run, task_id, 1, 0))
        assert stack.airflow.task_state("fluss_tiering", run, task_id, 0).try_number == 1
    assert rows_in_lake(stack, good) == EXPECTED
    lease = stack.airflow.xcom("fluss_tiering", run, "tier.acquire", 0)
    assert stack.client.list_leases(lease["lease_id"]) == []


@pytest.mark.long
def test_an_application_that_outlives_its_killed_task_ends_its_round_and_leaves_no_lease(stack, new_table):
    table = new_table()
    run = stack.start("killed_with_spark", table)
    path = TablePath.parse(table)
    wait_until(lambda: stack.client.list_tiering_statuses(path)[0].state is TieringState.TIERING, 600, every=0.1)
    os.kill(stack.airflow.task_state("killed_with_spark", run, "submit").pid, signal.SIGKILL)
    assert stack.airflow.wait_for_run("killed_with_spark", run) == "failed"
    assert stack.states("killed_with_spark", run) == {
        "acquire": "success",
        "submit": "failed",
        "wait": "success",
        "release": "success",
    }
    assert rows_in_lake(stack, table) == EXPECTED
    lease = stack.airflow.xcom("killed_with_spark", run, "acquire")
    assert stack.client.list_leases(lease["lease_id"]) == []


@pytest.mark.long
def test_a_submit_that_is_marked_failed_tells_the_sensor_and_leaves_no_lease(stack, new_table):
    table = new_table()
    run = stack.start("killed_with_spark", table)
    wait_until(lambda: stack.states("killed_with_spark", run)["submit"] == "running", every=0.3)
    wait_until(lambda: "Spark-Submit cmd" in stack.airflow.task_log("killed_with_spark", run, "submit"), every=0.3)
    lease = stack.airflow.xcom("killed_with_spark", run, "acquire")
    # A claimed table keeps the sensor waiting until the submit task says that it was killed.
    stack.client.claim_tables([TablePath.parse(table)], lease["lease_id"], lease["attempt_token"], "a test")
    stack.airflow.mark_failed("killed_with_spark", run, "submit")
    assert stack.airflow.wait_for_run("killed_with_spark", run) == "failed"
    assert f"Tiering of {table} was cancelled: task submit was marked failed" in stack.airflow.task_log(
        "killed_with_spark", run, "wait"
    )
    assert stack.client.list_leases(lease["lease_id"]) == []


@pytest.mark.long
def test_one_table_is_tiered_by_its_name_whether_it_is_due_or_not(stack, new_table):
    stack.airflow.wait_for_dag("fluss_tiering_table")
    table = new_table(freshness="1h")
    run = stack.airflow.trigger("fluss_tiering_table", {"table": table})
    assert stack.airflow.wait_for_run("fluss_tiering_table", run) == "success"
    assert rows_in_lake(stack, table) == EXPECTED
    lease = stack.airflow.xcom("fluss_tiering_table", run, "acquire")
    assert stack.client.list_leases(lease["lease_id"]) == []
    # D27: without new rows nothing is given to Spark
    run = stack.airflow.trigger("fluss_tiering_table", {"table": table})
    assert stack.airflow.wait_for_run("fluss_tiering_table", run) == "success"
    lease = stack.airflow.xcom("fluss_tiering_table", run, "acquire")
    (unchanged,) = stack.client.list_tiering_rounds(lease_id=lease["lease_id"])
    assert unchanged.state is TieringState.TIERED
    assert unchanged.driver.startswith("no Spark")
