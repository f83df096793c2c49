"""What a person may clear while rounds run, and afterwards."""

from __future__ import annotations

import pytest
from ending import states
from way_run import Way

from waiting import wait_until


@pytest.mark.parametrize("task", ["acquire", "submit", "wait"])
def test_a_task_is_cleared_while_the_rounds_run(begin, task):  # D62
    run = begin(f"A person clears `{task}` while the rounds run")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    tries = run.try_number(task)
    run.stack.airflow.clear(run.dag_id, run.run_id, [task], only_failed=False)
    wait_until(lambda: run.try_number(task) > tries and run.state(task) not in {None, "restarting"}, 300, every=0.3)
    run.proxy.go()
    ending = run.end()
    assert ending.broken == []


def test_release_is_cleared_after_the_run(begin):
    run = begin("A person clears `release` after the run", held=False)
    run.end()
    run.stack.airflow.clear(run.dag_id, run.run_id, ["release"], only_failed=False)
    ending = run.end()
    assert ending.broken == []


@pytest.fixture
def two_batches(begin):
    """A run of the main DAG with two mapped instances, whose rounds run."""

    def start(way: str, **options: object) -> Way:
        run: Way = begin(way, "fluss_tiering", freshness="1s", batch_size=1, **options)
        run.wait_until_tiering()
        for index in (0, 1):
            run.wait_for_state("tier.wait", "deferred", map_index=index)
        return run

    return start


def test_one_mapped_instance_is_cleared_beside_a_healthy_one(two_batches):  # D60
    run = two_batches("A person clears the `wait` of one batch while the rounds of another run (the main DAG)")
    tries = run.try_number("tier.wait", 0)
    run.stack.airflow.clear(run.dag_id, run.run_id, [("tier.wait", 0)], only_failed=False)
    wait_until(lambda: run.try_number("tier.wait", 0) > tries, 300, every=0.3)
    run.proxy.go()
    ending = run.end()
    assert ending.tasks["tier.submit 1"] == "success, try 1", ending.tasks
    assert states(ending.tasks)["tier.wait 1"] == "success"
    assert ending.broken == []


def test_one_mapped_instance_is_marked_failed_beside_a_healthy_one(two_batches):  # D60
    way = "A person marks the `submit` of one batch as failed while the rounds of another run (the main DAG)"
    run = two_batches(way, by_hand=True, ends="failed")
    run.stack.airflow.mark(run.dag_id, run.run_id, "tier.submit", "failed", 0)
    run.wait_for_state("tier.wait", "failed", map_index=0)
    run.proxy.go()
    ending = run.end()
    assert {ending.tasks[f"tier.{task} 1"] for task in ("acquire", "submit", "wait", "release")} == {"success, try 1"}
    assert sum(lake.is_tiered for lake in ending.lake.values()) == 1
    run.clear_failed()
    assert ending.broken == []
