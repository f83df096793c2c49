"""Triggers of one event loop ask together for the states of the submit task."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter

import pytest

from airflow_provider_fluss import task_states as shared
from airflow_provider_fluss.task_states import SharedTaskStates, TaskInstanceKey
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from waiting import WAIT_S, wait_until


def submit_task(map_index: int) -> dict:
    return {"dag_id": "dag", "run_id": "run", "task_id": "submit", "map_index": map_index, "claim_timeout": 60}


async def fire(waiting: FlussTieringStatusTrigger) -> dict:
    (event,) = [event async for event in waiting.run()]
    return event.payload


@pytest.fixture
def looks(monkeypatch, task_states) -> Counter:
    """Counts the questions for the states of a task."""
    counted: Counter = Counter()

    def counting(dag_id: str, run_id: str, task_id: str) -> dict[str, str | None]:
        counted[task_id] += 1
        return dict(task_states)

    monkeypatch.setattr(shared, "task_states", counting)
    return counted


async def test_triggers_look_once_for_all_map_indexes_of_a_run(client, new_table, acquire, looks, task_states):
    lease = acquire(new_table())
    task_states.update({f"submit_{index}": "running" for index in range(50)})
    began_at = time.monotonic()
    waiting = [
        asyncio.create_task(fire(FlussTieringStatusTrigger(lease, 0.5, 30, submit_task(index)))) for index in range(50)
    ]
    await asyncio.to_thread(wait_until, lambda: looks["submit"] >= 4)
    # The first looks may be two: one serves only those triggers that began before it.
    assert looks["submit"] <= (time.monotonic() - began_at) / 0.5 + 2
    client.cancel_tiering(lease["lease_id"], lease["attempt_token"], "stop")
    task_states.update({f"submit_{index}": "failed" for index in range(50)})
    events = await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S)
    assert {each["verdict"] for each in events} == {"cancelled"}
    del waiting
    gc.collect()
    assert not shared._SHARED


async def test_a_failure_is_decided_only_by_a_look_that_is_new(new_table, acquire, driver, task_states, looks):  # D61
    """A person clears the submit task right after it was seen failed: its next try tiers the table."""
    table = new_table()
    lease = acquire(table)
    driver.fail_round(lease, table, "disk full")
    task_states["submit"] = "running"
    states = SharedTaskStates(TaskInstanceKey("dag", "run", "submit", -1))
    looked = asyncio.Event()
    original = states.since

    async def cleared_after_a_look(time: float) -> dict[str, str | None]:
        seen = await original(time)
        if "failed" in seen.values():
            task_states["submit"] = "queued"
            looked.set()
        return seen

    states.since = cleared_after_a_look  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedTaskStates, "of", lambda _: states)
        waiting = asyncio.create_task(fire(FlussTieringStatusTrigger(lease, 0.1, 30, submit_task(-1))))
        await asyncio.sleep(0.3)
        task_states["submit"] = "failed"
        await asyncio.wait_for(looked.wait(), WAIT_S)
        await asyncio.sleep(0.5)
        assert not waiting.done()
        driver.tier(lease, table)
        event = await asyncio.wait_for(waiting, WAIT_S)
        assert (event["verdict"], event["lease"]) == ("tiered", lease)


async def test_states_are_shared_for_as_long_as_they_may_be_old(looks, task_states):
    task_states["submit_7"] = "running"
    key = TaskInstanceKey("dag", "run", "submit", 7)
    now = asyncio.get_running_loop().time
    states = SharedTaskStates.of(key)
    assert SharedTaskStates.of(TaskInstanceKey("dag", "run", "submit", 8)) is states
    assert SharedTaskStates.of(TaskInstanceKey("dag", "other run", "submit", 7)) is not states
    assert await asyncio.to_thread(asyncio.run, elsewhere(key)) is not states
    assert key.in_states(await states.since(now())) == "running"
    asked_at = now()
    task_states["submit_7"] = "failed"
    assert key.in_states(await states.since(asked_at - 60)) == "running"
    both = await asyncio.gather(states.since(asked_at), states.since(asked_at))
    assert [key.in_states(each) for each in both] == ["failed", "failed"]
    assert looks["submit"] == 2


async def elsewhere(key: TaskInstanceKey) -> SharedTaskStates:
    """Return the states of another event loop."""
    return SharedTaskStates.of(key)
