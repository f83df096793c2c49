"""The release task, whose state is that of the run, and the client that triggers of one event loop share."""

from __future__ import annotations

import asyncio
import json

import grpc.aio
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import DAG
from airflow.sdk.bases.operator import BaseOperator
from provider_support import AWAY

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from engine_support import ServerProcess
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from waiting import WAIT_S

SUCCEEDED = {"acquire": "success", "submit": "success", "wait": "success"}
SUBMIT_WAS_KILLED = {**SUCCEEDED, "submit": "failed"}


def release(lease: object, *, decides: bool = True) -> FlussReleaseKvSnapshotLeaseOperator:
    """The release task of a DAG of the usual form."""
    with DAG("dag"):
        acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=["db.t"])
        task = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=lease)
        teardown = task.as_teardown(setups=acquire, on_failure_fail_dagrun=decides)
        acquire >> [BaseOperator(task_id="submit"), BaseOperator(task_id="wait")] >> teardown
    return task


@pytest.mark.parametrize("states", [SUBMIT_WAS_KILLED, {**SUCCEEDED, "wait": "failed"}, {}])
def test_a_run_whose_tables_are_tiered_is_green(client, context, driver, lease, task_states, states):  # D70
    task_states.update(states)
    for table in lease["tables"]:
        driver.tier(lease, table)
    release(lease).execute(context("release"))
    assert client.list_leases(lease["lease_id"]) == []


def test_a_run_with_a_table_that_failed_is_red_and_names_it(client, context, driver, lease, task_states):  # D70
    task_states.update(SUBMIT_WAS_KILLED)
    good, bad = lease["tables"]
    driver.tier(lease, good)
    driver.fail_round(lease, bad, "disk full")
    with pytest.raises(AirflowFailException) as failed:
        release(lease).execute(context("release"))
    assert str(failed.value) == f"1 of 2 tables failed to be tiered: {bad} (epoch 1): disk full"
    assert client.list_leases(lease["lease_id"]) == []


def test_a_run_whose_rounds_go_on_is_red_and_stops_them(client, context, driver, lease, task_states):  # D70
    task_states.update({**SUBMIT_WAS_KILLED, "wait": "failed"})
    running, unclaimed = lease["tables"]
    driver.claim(lease, running)
    with pytest.raises(AirflowFailException) as failed:
        release(lease).execute(context("release"))
    assert str(failed.value) == (
        f"Not all tables were tiered: 0 of 2 done; Tiering: {running} (epoch 1); not yet claimed: {unclaimed}"
    )
    assert client.list_leases(lease["lease_id"]) == []
    assert client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason is not None


def test_a_run_whose_rounds_were_cancelled_tells_the_reason(client, context, lease, task_states):  # D70
    task_states.update({**SUCCEEDED, "submit": "failed", "wait": "failed"})
    client.cancel_tiering(lease["lease_id"], lease["attempt_token"], "task wait was marked failed")
    with pytest.raises(AirflowFailException, match=r"was cancelled: task wait was marked failed$"):
        release(lease).execute(context("release"))


def test_without_a_failed_task_nothing_is_in_doubt(client, context, lease, task_states):
    task_states.update({**SUCCEEDED, "submit": "skipped"})
    release(lease).execute(context("release"))
    assert client.list_leases(lease["lease_id"]) == []


def test_a_release_that_does_not_decide_only_releases(client, context, lease, task_states):
    task_states.update(SUBMIT_WAS_KILLED)
    release(lease, decides=False).execute(context("release"))
    assert client.list_leases(lease["lease_id"]) == []
    release(None, decides=False).execute(context("release"))


def test_without_a_lease_a_failed_run_is_red(server, context, task_states):
    task_states.update(SUBMIT_WAS_KILLED)
    with pytest.raises(AirflowFailException, match=r"^There was no lease to tier under\. "):
        release(None).execute(context("release"))


@pytest.mark.parametrize(
    ("states", "try_number", "error"),
    [
        (SUCCEEDED, 1, FlussTieringError),
        (SUCCEEDED, 3, AirflowSkipException),
        (SUBMIT_WAS_KILLED, 3, FlussTieringError),
    ],
)
def test_a_server_that_is_away_makes_no_run_red_whose_tasks_succeeded(
    monkeypatch, context, task_states, states, try_number, error
):
    away = {"conn_type": "fluss", "host": "127.0.0.1", "port": free_ports(1)[0], "extra": {"timeout": 0.3}}
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", json.dumps(away))
    task_states.update(states)
    with pytest.raises(error):
        release(AWAY).execute(context("release", try_number=try_number, max_tries=2))


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> list[grpc.aio.Channel]:
    """The channels that are opened."""
    opened = []
    insecure_channel = grpc.aio.insecure_channel

    def opening(*args: object) -> grpc.aio.Channel:
        opened.append(insecure_channel(*args))
        return opened[-1]

    monkeypatch.setattr(grpc.aio, "insecure_channel", opening)
    return opened


async def test_many_triggers_wait_over_one_channel(client: TieringClient, new_table, acquire, driver, channels):
    async def fire(lease: dict) -> dict:
        (event,) = [each async for each in FlussTieringStatusTrigger(lease, 0.1, 30).run()]
        return event.payload

    leases = {table: acquire(table) for table in (new_table(), new_table(), new_table())}
    waiting = [asyncio.create_task(fire(lease)) for lease in leases.values()]
    await asyncio.sleep(0.3)
    # One that is cancelled, as a deferred task is when a person clears it, takes nothing away from the others.
    waiting[0].cancel()
    for table in list(leases)[1:]:
        driver.tier(leases[table], table)
    events = await asyncio.wait_for(asyncio.gather(*waiting[1:]), WAIT_S)
    assert [each["verdict"] for each in events] == ["tiered", "tiered"]
    assert len(channels) == 1


async def test_the_last_user_closes_the_client(server: ServerProcess, new_table, channels):
    table = TablePath.parse(new_table())
    hook = FlussHook()
    async with hook.share_async_client() as first:
        async with hook.share_async_client() as second:
            assert second is first
        assert await first.list_tiering_statuses(table)
    assert channels[0].get_state() is grpc.ChannelConnectivity.SHUTDOWN
    async with hook.share_async_client() as third:
        assert await third.list_tiering_statuses(table)
    assert len(channels) == 2


async def test_other_deadlines_and_loops_have_other_clients(server: ServerProcess, channels):
    def in_a_loop_of_its_own() -> int:
        async def use() -> int:
            async with FlussHook().share_async_client() as client:
                return id(client)

        return asyncio.run(use())

    async with FlussHook().share_async_client() as client, FlussHook(timeout=1).share_async_client() as hurried:
        assert hurried is not client
        assert await asyncio.to_thread(in_a_loop_of_its_own) not in {id(client), id(hurried)}
    assert len(channels) == 3
