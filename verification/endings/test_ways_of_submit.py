"""What may happen to the task that submits the Spark application, and to the application."""

from __future__ import annotations

import os
import signal

import psutil
from ending import said, states
from holding_proxy import HeldCall
from spark_processes import executors

from standalone_support import standalone_cluster
from waiting import wait_until


def test_nothing_happens(begin):
    run = begin("Nothing happens")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    run.proxy.go()
    ending = run.end()
    assert ending.broken == []


def test_submit_raises_an_exception(begin):
    run = begin(
        "`submit` raises an exception: its Spark connection does not exist", spark_conn_id="nowhere", ends="failed"
    )
    ending = run.end()
    assert said(ending, "nowhere"), ending.told
    assert ending.broken == []


def test_the_submit_task_is_killed_with_tries_left(begin):
    run = begin("`kill -9` of the process of `submit`, with tries left")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    os.kill(run.pid("submit"), signal.SIGKILL)
    run.wait_for_state("submit", "up_for_retry", "queued", "scheduled", "success", "failed")
    run.proxy.go()
    ending = run.end()
    assert ending.broken == []


def test_the_submit_task_is_killed_on_its_last_try(begin):  # D70
    run = begin("`kill -9` of the process of `submit`, on its last try", "way_with_one_try")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    os.kill(run.pid("submit"), signal.SIGKILL)
    run.wait_for_state("submit", "failed")
    run.proxy.go()
    # The application outlives its task and tiers the tables. The release task, which is the last one, sees that.
    ending = run.end()
    assert states(ending.tasks)["submit"] == "failed"
    assert ending.broken == []


def test_the_submit_task_and_its_supervisor_are_killed(begin):
    run = begin("`kill -9` of the process of `submit` and of its supervisor")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    task = psutil.Process(run.pid("submit"))
    supervisor = task.parent()
    assert supervisor is not None
    for process in (supervisor, task):
        process.send_signal(signal.SIGKILL)
    run.wait_for_state("submit", "up_for_retry", "queued", "scheduled", "success", "failed")
    run.proxy.go()
    ending = run.end()
    assert ending.broken == []


def test_the_spark_jvm_is_killed(begin):
    run = begin("`kill -9` of Spark's JVM, with tries left")
    run.wait_until_tiering()
    run.wait_for_state("wait", "deferred")
    run.spark.jvm(run.lease()["lease_id"]).kill()
    run.proxy.go()
    ending = run.end()
    assert ending.broken == []


def test_a_python_worker_is_killed(begin):
    run = begin("`kill -9` of Spark's Python workers")
    run.wait_until_tiering()
    workers = run.spark.workers(run.lease()["lease_id"])
    assert workers
    for worker in workers:
        worker.kill()
    run.proxy.go()
    ending = run.end()
    assert states(ending.tasks)["submit"] == "success"
    assert ending.broken == []


def test_an_executor_is_killed(begin, tmp_path):
    with standalone_cluster(tmp_path) as url:
        run = begin("`kill -9` of an executor of a standalone Spark cluster", spark_master=url)
        # The cluster has two cores, which one table takes.
        run.proxy.wait_until_any_held()
        executors()[0].kill()
        run.proxy.go()
        ending = run.end()
    assert ending.broken == []


def test_the_spark_jvm_is_killed_after_the_commit(begin):
    run = begin("`kill -9` of Spark's JVM after the commits to Iceberg, before the server knows of them")
    run.wait_until_tiering()
    committed = HeldCall()
    run.proxy.faults["CommitLakeTableSnapshot"] = committed
    run.proxy.go()
    wait_until(lambda: committed.waiting == len(run.tables), 300, every=0.2)
    assert all(run.lake(table).is_tiered for table in run.tables)
    run.spark.jvm(run.lease()["lease_id"]).kill()
    committed.go()
    ending = run.end()
    assert ending.broken == []
