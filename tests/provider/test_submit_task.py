"""When nothing more is to be expected of the task that submits."""

from __future__ import annotations

import pytest

from airflow_provider_fluss.submit_task import SubmitTask
from airflow_provider_fluss.task_states import TaskInstanceKey

KEY = TaskInstanceKey("d", "r", "submit", 2)


def watch(now: list[float]) -> SubmitTask:
    return SubmitTask(KEY, 60, monotonic=lambda: now[0])


def mapped(state: str | None) -> dict[str, str | None]:
    return {"submit_1": "running", "submit_2": state}


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "skipped", "removed"])
def test_an_end_without_success_is_final(state):
    seen = watch([0]).seen_in(mapped(state))
    assert seen.ended
    assert seen.claims_over
    assert state in seen.words


@pytest.mark.parametrize(
    "state",
    [None, "scheduled", "queued", "running", "up_for_retry", "up_for_reschedule", "restarting", "deferred"],
)
def test_a_task_that_may_still_submit_is_waited_for(state):  # D61
    seen = watch([0]).seen_in(mapped(state))
    assert not seen.ended
    assert not seen.claims_over
    assert (state or "scheduler") in seen.words


def test_before_a_mapped_task_is_expanded_its_instance_has_no_index():
    assert watch([0]).seen_in({"submit": "upstream_failed"}).ended
    assert not watch([0]).seen_in({}).ended


def test_a_submitted_application_has_the_claim_timeout_to_claim():
    now = [0.0]
    task = watch(now)
    assert not task.counts_down
    for now[0], over in ((0, False), (60, False), (61, True)):
        seen = task.seen_in(mapped("success"))
        assert seen.ended
        assert seen.claims_over is over
        assert task.counts_down
    assert seen.words == "success 61 s ago"


def test_a_cleared_submit_starts_over():
    now = [0.0]
    task = watch(now)
    task.seen_in(mapped("success"))
    now[0] = 50
    task.seen_in(mapped("running"))
    assert not task.counts_down
    now[0] = 100
    assert not task.seen_in(mapped("success")).claims_over


def test_arguments_make_the_same_watch_in_the_triggerer():
    kwargs = watch([0]).to_kwargs()
    assert SubmitTask.from_kwargs(kwargs).to_kwargs() == kwargs
    assert kwargs == {"dag_id": "d", "run_id": "r", "task_id": "submit", "map_index": 2, "claim_timeout": 60}
