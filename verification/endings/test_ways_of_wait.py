"""What may happen to the sensor, and what a person may mark."""

from __future__ import annotations

import pytest
from ending import EITHER, said, states

ENDS = {"failed": "failed", "success": EITHER}
"""A state that a person marks -> the state in which the run must end."""


def test_a_table_cannot_be_tiered(begin):
    run = begin(
        "A table cannot be tiered: its lake table is somebody else's", interruption=False, taken=True, ends="failed"
    )
    ending = run.end()
    assert states(ending.tasks)["wait"] == "failed"
    keyed, log = run.tables
    assert ending.lake[log].is_tiered, "a table that fails must not keep another from being tiered"
    assert ending.statuses[keyed].failures
    assert said(ending, keyed), ending.told
    assert ending.broken == []


def test_failed_tasks_are_cleared_after_the_table_was_repaired(begin):  # D62
    way = "A table cannot be tiered; it is repaired, and the failed tasks are cleared"
    run = begin(way, interruption=False, taken=True, ends="failed")
    run.end()
    run.give_back_lake_table()
    run.clear_failed()
    assert run.ending.broken == []


def test_the_wait_times_out(begin):
    run = begin("The time-out of the deferred `wait` passes while the rounds run", "way_that_times_out", ends="failed")
    run.wait_until_tiering()
    ending = run.end()
    assert states(ending.tasks)["wait"] == "failed"
    assert ending.broken == []


@pytest.mark.parametrize("state", ["failed", "success"])
def test_the_running_submit_is_marked(begin, state):  # D64
    run = begin(f"A person marks the running `submit` as {state}", by_hand=True, ends=ENDS[state])
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    run.stack.airflow.mark(run.dag_id, run.run_id, "submit", state)
    ending = run.end()
    if state == "failed":
        run.clear_failed()
    assert ending.broken == []


@pytest.mark.parametrize("state", ["failed", "success"])
def test_the_deferred_wait_is_marked(begin, state):  # D66
    run = begin(f"A person marks the deferred `wait` as {state}", by_hand=True, ends=ENDS[state])
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    run.stack.airflow.mark(run.dag_id, run.run_id, "wait", state)
    ending = run.end()
    if state == "failed":
        assert states(ending.tasks)["submit"] == "failed", ending
        run.clear_failed()
    assert ending.broken == []


@pytest.mark.parametrize("state", ["failed", "success"])
def test_the_poking_wait_is_marked(begin, state):  # D68
    run = begin(f"A person marks the poking `wait` as {state}", "way_that_pokes", by_hand=True, ends=ENDS[state])
    run.wait_until_tiering()
    run.wait_for_state("wait", "running")
    run.stack.airflow.mark(run.dag_id, run.run_id, "wait", state)
    ending = run.end()
    if state == "failed":
        assert states(ending.tasks)["submit"] == "failed", ending
        run.clear_failed()
    assert ending.broken == []
