"""What may happen to a submit task whose application another operator submits, by a `Way`."""

from __future__ import annotations

import os
import signal

import pytest
from ending import EITHER, states

from waiting import wait_until

OPERATORS = {"way_by_bash": "`BashOperator`", "way_that_is_deferred": "An operator that is deferred"}
"""A DAG -> what its `submit` submits by."""
STATES = {"way_by_bash": "running", "way_that_is_deferred": "deferred"}
"""A DAG -> the state of its `submit` while the rounds run."""


@pytest.mark.parametrize("dag_id", OPERATORS)
def test_nothing_happens(begin, dag_id):
    run = begin(f"{OPERATORS[dag_id]}: nothing happens", dag_id)
    run.wait_until_tiering()
    run.wait_for_state("submit", STATES[dag_id])
    run.proxy.go()
    ending = run.end()
    assert states(ending.tasks)["submit"] == "success"
    assert ending.broken == []


def test_the_submit_task_is_killed(begin):
    run = begin("`BashOperator`: `kill -9` of the process of `submit`, with tries left", "way_by_bash")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    os.kill(run.pid("submit"), signal.SIGKILL)
    run.wait_for_state("submit", "up_for_retry", "queued", "scheduled", "success", "failed")
    run.proxy.go()
    ending = run.end()
    assert ending.broken == []


def test_the_submit_task_times_out(begin):
    run = begin("`BashOperator`: the time-out of `submit` passes", "way_by_bash_that_times_out", ends="failed")
    run.proxy.wait_until_any_held()
    ending = run.end()
    assert states(ending.tasks)["submit"] == "failed"
    assert ending.broken == []


# The rounds go on if a person marks a deferred task as success.
@pytest.mark.parametrize(
    ("dag_id", "state"),
    [("way_by_bash", "failed"), ("way_by_bash", "success"), ("way_that_is_deferred", "failed")],
)
def test_the_submit_task_is_marked(begin, dag_id, state):
    ends = {"failed": "failed", "success": EITHER}[state]
    run = begin(f"{OPERATORS[dag_id]}: a person marks `submit` as {state}", dag_id, by_hand=True, ends=ends)
    run.wait_until_tiering()
    run.wait_for_state("submit", STATES[dag_id])
    run.wait_for_state("wait", "deferred")
    run.stack.airflow.mark(run.dag_id, run.run_id, "submit", state)
    ending = run.end()
    if state == "failed":
        run.clear_failed()
    assert ending.broken == []


@pytest.mark.parametrize("dag_id", OPERATORS)
def test_the_submit_task_is_cleared(begin, dag_id):
    run = begin(f"{OPERATORS[dag_id]}: a person clears `submit` while the rounds run", dag_id)
    run.wait_until_tiering()
    run.wait_for_state("submit", STATES[dag_id])
    run.wait_for_state("wait", "deferred")
    tries = run.try_number("submit")
    run.stack.airflow.clear(run.dag_id, run.run_id, ["submit"], only_failed=False)
    wait_until(lambda: run.try_number("submit") > tries and run.state("submit") in STATES.values(), 300, every=0.3)
    run.proxy.go()
    ending = run.end()
    assert ending.broken == []
