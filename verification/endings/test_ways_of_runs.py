"""What a person may do to a whole run."""

from __future__ import annotations

from waiting import wait_until


def test_the_run_is_marked_failed(begin):
    run = begin("A person marks the run as failed while the rounds run", by_hand=True, ends="failed")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    run.stack.airflow.mark_run(run.dag_id, run.run_id, "failed")
    ending = run.end()
    run.clear_failed()
    assert ending.broken == []


def test_the_run_is_marked_failed_and_deleted(begin):
    run = begin("A person marks the run as failed while the rounds run, and deletes it", by_hand=True, ends=None)
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    run.lease()
    run.stack.airflow.mark_run(run.dag_id, run.run_id, "failed")
    # Until `release` has run, Airflow refuses to delete the run.
    assert run.stack.airflow.wait_for_run(run.dag_id, run.run_id) == "failed"
    run.stack.airflow.delete_run(run.dag_id, run.run_id)
    wait_until(lambda: not run.stack.airflow.has_run(run.dag_id, run.run_id))
    ending = run.end()
    assert ending.broken == []
