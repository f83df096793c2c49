"""When nothing more is to be expected of the task that submits."""

from __future__ import annotations

import pytest

from airflow_provider_fluss.submit_task import SubmitTask


def watch(now: list[float]) -> SubmitTask:
    return SubmitTask(dag_id="d", run_id="r", task_id="submit", map_index=2, claim_timeout=60, monotonic=lambda: now[0])


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "skipped", "removed"])
def test_an_end_without_success_is_final(state):
    assert watch([0]).ended_in(state) == state


@pytest.mark.parametrize("state", [None, "scheduled", "queued", "running", "up_for_retry", "restarting", "deferred"])
def test_a_task_that_may_still_submit_is_waited_for(state):
    assert watch([0]).ended_in(state) is None


def test_a_submitted_application_has_the_claim_timeout_to_claim():
    now = [0.0]
    task = watch(now)
    assert task.ended_in("success") is None
    now[0] = 60
    assert task.ended_in("success") is None
    now[0] = 61
    assert task.ended_in("success") == "success 61 s ago"


def test_a_cleared_submit_starts_over():
    now = [0.0]
    task = watch(now)
    task.ended_in("success")
    now[0] = 50
    task.ended_in("running")
    now[0] = 100
    assert task.ended_in("success") is None


def test_arguments_make_the_same_watch_in_the_triggerer():
    kwargs = watch([0]).to_kwargs()
    assert SubmitTask(**kwargs).to_kwargs() == kwargs
    assert kwargs == {"dag_id": "d", "run_id": "r", "task_id": "submit", "map_index": 2, "claim_timeout": 60}
