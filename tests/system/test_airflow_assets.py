"""Assets under a real scheduler and triggerer: a DAG starts when a table was tiered."""

from __future__ import annotations

import time

import pytest

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath
from fluss_tiering.model.tiering import HeartbeatEntry, TieringStats
from waiting import wait_until

DAGS = ("starts_when_tiered", "also_starts_when_tiered")


def tier(stack, path: TablePath, stats: TieringStats) -> int:
    (claim,) = stack.client.claim_tables([path], "by hand", None, "a test")
    assert not isinstance(claim, FlussTieringError), claim
    entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=stats)
    assert not stack.client.heartbeat(finished=[entry]).finished_errors
    return claim.tiering_epoch


@pytest.mark.long
def test_a_dag_of_each_asset_starts_when_its_table_was_tiered_and_learns_of_the_round(stack):  # E10
    path = TablePath("system", "watched")
    for dag_id in DAGS:
        stack.airflow.wait_for_dag(dag_id)
    stack.client.create_table(
        path,
        TableDescriptor((Column("id", DataType.parse("BIGINT")),), properties={"table.datalake.enabled": "true"}),
    )
    try:
        epochs: list[int] = []

        def starts() -> bool:
            # Nothing tells from outside when the triggerer watches, so there is a round until one is seen.
            epochs.append(tier(stack, path, TieringStats(5, 500, 1, 40 + len(epochs))))
            time.sleep(2)
            return all(stack.airflow.run_ids(dag_id) for dag_id in DAGS)

        wait_until(starts, 600)
        for dag_id in DAGS:
            run = stack.airflow.run_ids(dag_id)[0]
            assert stack.airflow.wait_for_run(dag_id, run) == "success"
            for payload in stack.airflow.xcom(dag_id, run, "seen"):
                # The triggerer may look after several rounds.
                assert payload.pop("rounds") >= 1
                assert payload == {
                    "table": "system.watched",
                    "tiering_epoch": payload["tiering_epoch"],
                    "lake_snapshot_id": 40 + epochs.index(payload["tiering_epoch"]),
                    "rows": 5,
                    "bytes": 500,
                    "files": 1,
                    "partitions": [],
                }
    finally:
        stack.client.drop_table(path, drop_untiered=True)


@pytest.mark.long
def test_a_dag_starts_when_the_sensor_of_another_tells_that_a_table_was_tiered(stack, new_table):
    table = new_table()
    for dag_id in ("tells_what_it_tiered", "starts_when_told"):
        stack.airflow.wait_for_dag(dag_id)
    run = stack.airflow.trigger("tells_what_it_tiered", {"tables": [table]})
    wait_until(lambda: stack.airflow.task_state("tells_what_it_tiered", run, "wait").state == "deferred", 600)
    lease = stack.airflow.xcom("tells_what_it_tiered", run, "acquire")
    (claim,) = stack.client.claim_tables([TablePath.parse(table)], lease["lease_id"], lease["attempt_token"], "a test")
    assert not isinstance(claim, FlussTieringError), claim
    entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=TieringStats(7, 700, 2, 77))
    stack.client.heartbeat(finished=[entry])
    assert stack.airflow.wait_for_run("tells_what_it_tiered", run) == "success"
    wait_until(lambda: stack.airflow.run_ids("starts_when_told"), 600)
    expected = {
        "table": table,
        "tiering_epoch": claim.tiering_epoch,
        "lake_snapshot_id": 77,
        "rows": 7,
        "bytes": 700,
        "files": 2,
        "partitions": [],
    }
    # A task that Airflow runs twice tells twice.
    for told in stack.airflow.run_ids("starts_when_told"):
        assert stack.airflow.wait_for_run("starts_when_told", told) == "success"
        assert all(each == expected for each in stack.airflow.xcom("starts_when_told", told, "seen"))
