"""The trigger against a real server, which may go away and come back."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest
from provider_support import AWAY

from airflow_provider_fluss.outcome import Judgement, Verdict
from airflow_provider_fluss.submit_task import SubmitTask
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from engine_support import ServerProcess
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import TieringState
from waiting import WAIT_S


def trigger(lease: dict, *, unavailable_timeout: float = 30) -> FlussTieringStatusTrigger:
    return FlussTieringStatusTrigger(lease, poll_interval=0.1, unavailable_timeout=unavailable_timeout)


async def fire(waiting: FlussTieringStatusTrigger) -> dict:
    (event,) = [event async for event in waiting.run()]
    return event.payload


async def test_it_first_asks_one_interval_after_the_sensor(monkeypatch, new_table, acquire, driver):
    table = new_table()
    lease = acquire(table)
    driver.tier(lease, table)
    said = []

    async def note(seconds: float) -> None:
        said.append(f"slept {seconds:g} s")

    async def ask(*_arguments: object) -> Judgement:
        said.append("asked")
        return Judgement(Verdict.TIERED, "")

    monkeypatch.setattr(FlussTieringStatusTrigger, "_judgement", ask)
    monkeypatch.setattr(asyncio, "sleep", note)
    await fire(FlussTieringStatusTrigger(lease, poll_interval=7, unavailable_timeout=30))
    assert said == ["slept 7 s", "asked"]


@pytest.mark.system
async def test_it_waits_through_a_restart_of_the_server(tmp_path, monkeypatch, context):
    own = ServerProcess(tmp_path)
    own.start()
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", f"fluss://127.0.0.1:{own.port}?timeout=2")
    try:
        with TieringClient(f"127.0.0.1:{own.port}") as client:
            attempt = client.acquire_lease("a lease", 60_000, {}, allow_empty=True)
            held = {"lease_id": "a lease", "attempt_token": attempt.attempt_token, "fluss_conn_id": "fluss_default"}
            lease = {**AWAY, **held}
            waiting = asyncio.create_task(fire(trigger(lease)))
            await asyncio.sleep(0.5)
            await asyncio.to_thread(own.stop)
            await asyncio.sleep(1)
            assert not waiting.done()
            await asyncio.to_thread(own.start)
            client.cancel_tiering("a lease", attempt.attempt_token, "seen after the restart")
            event = await asyncio.wait_for(waiting, WAIT_S)
    finally:
        own.stop()
    assert "seen after the restart" in event["message"]


async def test_cleanup_releases_nothing(client, new_table, acquire):
    lease = acquire(new_table())
    waiting = trigger(lease)
    running = asyncio.create_task(fire(waiting))
    await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await waiting.cleanup()
    assert client.list_leases(lease["lease_id"])
    assert client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason is None


def killed(lease: dict) -> FlussTieringStatusTrigger:
    """The trigger of task `wait`, as the triggerer has it when somebody acted on the task."""
    waiting = trigger(lease)
    waiting.task_instance = SimpleNamespace(dag_id="dag", run_id="run", task_id="wait", map_index=-1)
    return waiting


@pytest.mark.parametrize("state", ["failed", "success", "skipped"])
async def test_marking_the_waiting_task_ends_the_rounds_of_its_attempt(
    client, new_table, acquire, driver, task_states, state
):
    table = new_table()
    lease = acquire(table)
    driver.claim(lease, table)
    task_states["wait"] = state
    await killed(lease).on_kill()
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert [each.state for each in outcome.rounds] == [TieringState.FAILED]
    assert outcome.cancelled_reason == f"task wait was marked {state}"


@pytest.mark.parametrize("state", [None, "scheduled", "queued", "running", "deferred"])
async def test_clearing_the_waiting_task_ends_nothing(client, new_table, acquire, driver, task_states, state):  # D62
    table = new_table()
    lease = acquire(table)
    claim = driver.claim(lease, table)
    task_states["wait"] = state
    await killed(lease).on_kill()
    assert client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason is None
    driver.finish(claim)


async def test_a_late_kill_leaves_the_newer_attempt_alone(client, new_table, acquire, driver, task_states):  # L22
    table = new_table()
    older = acquire(table)
    driver.fail_round(older, table, "disk full")
    newer = acquire(table)
    claim = driver.claim(newer, table)
    task_states["wait"] = "failed"
    await killed(older).on_kill()
    assert client.lease_outcome(newer["lease_id"], newer["attempt_token"]).cancelled_reason is None
    driver.finish(claim)


async def test_it_ends_the_rounds_of_a_deferred_submit_task_that_a_person_marks(
    client, new_table, acquire, driver, task_states, monkeypatch
):
    table = new_table()
    lease = acquire(table)
    submit = {"dag_id": "dag", "run_id": "run", "task_id": "submit", "map_index": -1, "claim_timeout": 60}
    task_states["submit"] = "deferred"
    looked, seen_in = asyncio.Event(), SubmitTask.seen_in
    monkeypatch.setattr(SubmitTask, "seen_in", lambda task, states: (looked.set(), seen_in(task, states))[1])
    waiting = asyncio.create_task(
        fire(FlussTieringStatusTrigger(lease, poll_interval=0.1, unavailable_timeout=30, submit_task=submit))
    )
    await asyncio.wait_for(looked.wait(), WAIT_S)
    claim = driver.claim(lease, table)
    looked.clear()
    await asyncio.wait_for(looked.wait(), WAIT_S)
    task_states["submit"] = "failed"
    event = await asyncio.wait_for(waiting, WAIT_S)
    assert event["verdict"] == "cancelled"
    assert "task submit was marked failed" in event["message"]
    (ended,) = client.lease_outcome(lease["lease_id"], lease["attempt_token"]).rounds
    assert (ended.tiering_epoch, ended.state) == (claim.tiering_epoch, TieringState.FAILED)


async def test_a_kill_is_bounded_in_time(monkeypatch, task_states):
    task_states["wait"] = "failed"
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", f"fluss://127.0.0.1:{free_ports(1)[0]}?timeout=60")
    started = time.monotonic()
    with pytest.raises(FlussTieringError) as error:
        await killed(AWAY).on_kill()
    assert error.value.code is ErrorCode.UNAVAILABLE
    assert time.monotonic() - started < 30
