"""The operator that does a round in one task, with a spark-submit that behaves as given."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import DAG

from airflow_provider_fluss.operators.round import FlussTieringOperator
from engine_support import ServerProcess
from fluss_tiering.model.tiering import TieringState

TIER = """
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import HeartbeatEntry, TieringStats
import os, socket
driver = f"local-1 on {{socket.gethostname()}}, process {{os.getpid()}}"
arguments = sys.argv[sys.argv.index("--server"):]
value = lambda flag: arguments[arguments.index(flag) + 1]
with TieringClient(value("--server")) as client:
    for table in [each for each in arguments if each.startswith("db.")]:
        (claim,) = client.claim_tables(
            [TablePath.parse(table)], value("--lease-id"), int(value("--attempt-token")), driver
        )
        {end}
"""
FINISH = (
    "entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=TieringStats(3, 300, 1, 42))\n"
    "        client.heartbeat(finished=[entry])"
)
FAIL = "client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, 'disk full')]); sys.exit(1)"
CRASH = "sys.exit(1)"


def tier(**arguments: Any) -> FlussTieringOperator:
    return FlussTieringOperator(task_id="tier", poke_interval=0.1, **arguments)


@pytest.fixture
def behave(spark):
    return lambda end: spark(TIER.format(end=end))


def held(operator: FlussTieringOperator) -> dict[str, Any]:
    assert isinstance(operator.lease, dict)
    return operator.lease


def test_it_returns_the_rounds_and_leaves_no_lease(client, behave, new_table, context):
    behave(FINISH)
    first, second = new_table(), new_table(primary_key=False)
    operator = tier(tables=[first, second], table_concurrency=2)
    found = context("tier", max_tries=2)
    rounds = operator.execute(found)
    # The callback of a DAG finds the lease here.
    assert found["ti"].pushed == {"lease": held(operator)}
    assert [(each["table"], each["status"], each["rows"]) for each in rounds] == [
        (first, "Tiered", 3),
        (second, "Tiered", 3),
    ]
    json.dumps(rounds)
    lease = held(operator)
    assert client.list_leases(lease["lease_id"]) == []
    assert client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason is None


def test_a_table_that_fails_ends_the_task_with_its_error_and_leaves_no_lease(client, behave, new_table, context):
    behave(FAIL)
    table = new_table()
    operator = tier(tables=[table])
    with pytest.raises(AirflowFailException, match=f"The table failed to be tiered: {table} .*disk full"):
        operator.execute(context("tier", max_tries=2))
    assert client.list_leases(held(operator)["lease_id"]) == []


def test_wrong_arguments_are_told_before_a_lease_is_acquired(client, behave, new_table, context):
    behave(FINISH)
    before = {each.lease_id for each in client.list_leases()}
    for argument in ({"table_concurrency": "x"}, {"conf": "a=b"}, {"skip_missing_log": "yes"}, {"conn_id": None}):
        with pytest.raises(AirflowFailException, match=f"^{next(iter(argument))}"):
            tier(tables=[new_table()], **argument).execute(context("tier", max_tries=2))
    assert {each.lease_id for each in client.list_leases()} <= before


def test_a_retry_goes_on_with_the_attempt(client, behave, new_table, context):
    table = new_table()
    behave(CRASH)
    first = tier(tables=[table])
    with pytest.raises(AirflowException, match="Spark could not tier"):
        first.execute(context("tier", try_number=1, max_tries=1))
    assert client.list_leases(held(first)["lease_id"])
    (running,) = client.lease_outcome(held(first)["lease_id"], None).rounds
    assert running.state is TieringState.TIERING
    behave(FINISH)
    second = tier(tables=[table])
    (tiered,) = second.execute(context("tier", try_number=2, max_tries=1))
    assert held(second)["lease_id"] == held(first)["lease_id"]
    assert held(second)["attempt_token"] == held(first)["attempt_token"]
    assert tiered["status"] == "Tiered"
    assert client.list_leases(held(first)["lease_id"]) == []


def test_the_last_try_cancels_what_it_leaves_and_releases_the_lease(client, behave, new_table, context):
    behave(CRASH)
    table = new_table()
    operator = tier(tables=[table])
    with pytest.raises(AirflowException, match="Spark could not tier"):
        operator.execute(context("tier", try_number=2, max_tries=1))
    lease = held(operator)
    assert client.list_leases(lease["lease_id"]) == []
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert [each.state for each in outcome.rounds] == [TieringState.FAILED]
    assert outcome.cancelled_reason


@pytest.mark.parametrize("marked", ["failed", "success"])
def test_only_a_task_that_a_person_marked_releases_when_it_is_killed(
    client, behave, new_table, context, task_states, marked
):
    behave(CRASH)
    operator = tier(tables=[new_table()])
    with pytest.raises(AirflowException):
        operator.execute(context("tier", try_number=1, max_tries=1))
    for state in ("queued", marked):
        task_states["tier"] = state
        operator.on_kill()
        assert bool(client.list_leases(held(operator)["lease_id"])) is (state == "queued")


def test_a_table_that_is_not_there_starts_no_spark(server: ServerProcess, spark, context):
    called = spark("")
    with pytest.raises(AirflowFailException, match="missing"):
        tier(tables=["db.missing"]).execute(context("tier"))
    with pytest.raises(FileNotFoundError):
        called()


def test_it_takes_no_lease_and_renders_its_tables():
    with pytest.raises(ValueError, match="lease cannot be set"):
        tier(tables=["db.t"], lease={})
    assert {"tables", "fluss_conn_id", "claim_timeout", "conn_id"} <= set(FlussTieringOperator.template_fields)
    assert "lease" not in FlussTieringOperator.template_fields


def test_a_clear_tiers_again_whatever_the_operators_behind_it_did(client, behave, new_table, context, task_states):
    behave(FINISH)
    table = new_table()

    def execute(try_number: int) -> list[dict[str, Any]]:
        with DAG("dag"):
            operator = tier(tables=[table])
            operator >> FlussTieringOperator(task_id="other", tables=["db.other"])
        return operator.execute({**context("tier", try_number=try_number, max_tries=try_number - 1), "task": operator})

    execute(1)
    # A person clears the first task alone.
    task_states["other"] = "success"
    (again,) = execute(2)
    assert (again["status"], again["tiering_epoch"]) == ("Tiered", 2)
