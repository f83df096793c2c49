"""DAGs that a test interferes with: it runs their rounds itself, or kills their tasks."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from typing import Any
from unittest import mock

from airflow.sdk import Context, dag, task

from airflow_provider_fluss import callbacks
from airflow_provider_fluss.callbacks import release_lease_on_failure
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import HeartbeatEntry

PARAMS = {"tables": []}
TABLES = "{{ params.tables }}"


class GrantedThenKilled(FlussAcquireKvSnapshotLeaseOperator):
    """Its first try is killed after the server granted the lease and before the XCom is written."""

    def execute(self, context: Context) -> dict[str, Any]:
        lease = super().execute(context)
        if context["ti"].try_number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return lease


@dag(schedule=None, params=PARAMS, render_template_as_native_obj=True)
def waits_for_round() -> None:
    acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=TABLES)
    # E39: on a busy machine Airflow takes a quick return from the triggerer for an end of the task, and tries it again.
    wait = FlussTieringStatusSensor(
        task_id="wait",
        lease=acquire.output,
        poke_interval=1,
        deferrable=True,
        retries=3,
        retry_delay=timedelta(seconds=1),
    )
    release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
    acquire >> wait >> release.as_teardown(setups=acquire)


@dag(schedule=None, params=PARAMS, render_template_as_native_obj=True)
def retried() -> None:
    acquire = GrantedThenKilled(task_id="acquire", tables=TABLES, retries=1, retry_delay=timedelta(seconds=1))

    @task(retries=1, retry_delay=timedelta(seconds=1))
    def submit(lease: dict[str, Any], ti: Any = None) -> dict[str, Any]:
        if ti.try_number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return lease

    release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
    submit(acquire.output) >> release.as_teardown(setups=acquire)


@dag(schedule=None, params=PARAMS, render_template_as_native_obj=True)
def killed() -> None:
    acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=TABLES)

    @task
    def submit() -> None:
        time.sleep(300)

    work = submit()
    wait = FlussTieringStatusSensor(
        task_id="wait", lease=acquire.output, poke_interval=1, deferrable=True, submit_task_id="submit"
    )
    release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
    acquire >> [work, wait] >> release.as_teardown(setups=acquire)


@dag(schedule=None, params=PARAMS, render_template_as_native_obj=True)
def killed_with_spark() -> None:
    acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=TABLES)
    submit = FlussTieringSparkOperator(task_id="submit", lease=acquire.output)
    wait = FlussTieringStatusSensor(
        task_id="wait", lease=acquire.output, poke_interval=1, deferrable=True, submit_task_id="submit"
    )
    release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
    acquire >> [submit, wait] >> release.as_teardown(setups=acquire)


@dag(schedule=None, params=PARAMS, render_template_as_native_obj=True, max_active_tasks=1)
def takes_one_slot() -> None:
    acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=TABLES)

    @task(retries=1, retry_delay=timedelta(seconds=1))
    def submit(lease: dict[str, Any], ti: Any = None) -> None:
        if ti.try_number == 1:
            raise RuntimeError("injected fault")
        with FlussHook(lease["fluss_conn_id"]).get_client() as client:
            paths = [TablePath.parse(table) for table in lease["tables"]]
            claims = client.claim_tables(paths, lease["lease_id"], lease["attempt_token"], "a test")
            client.heartbeat(finished=[HeartbeatEntry(each.table_id, each.tiering_epoch) for each in claims])

    work = submit(acquire.output)
    # It gets the slot first.
    wait = FlussTieringStatusSensor(task_id="wait", lease=acquire.output, submit_task_id="submit", priority_weight=100)
    release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
    acquire >> [work, wait] >> release.as_teardown(setups=acquire, on_failure_fail_dagrun=True)


@dag(schedule=None, params=PARAMS, render_template_as_native_obj=True)
def task_callback_without_teardown() -> None:
    acquire = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=TABLES)

    @task(on_failure_callback=release_lease_on_failure)
    def fails() -> None:
        raise RuntimeError("injected fault")

    acquire >> fails()


def release_patiently(context: Context) -> None:
    """Release the leases. On a busy machine, Airflow's database may let the DAG processor wait for many seconds."""
    with mock.patch.object(callbacks, "TIMEOUT_SECONDS", 60.0):
        release_lease_on_failure(context)


@dag(schedule=None, params=PARAMS, render_template_as_native_obj=True, on_failure_callback=release_patiently)
def dag_callback_without_teardown() -> None:
    @task
    def each_table(params: dict[str, Any]) -> list[list[str]]:
        return [[table] for table in params["tables"]]

    acquire = FlussAcquireKvSnapshotLeaseOperator.partial(task_id="acquire").expand(tables=each_table())

    @task
    def is_killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    acquire >> is_killed()


waits_for_round()
retried()
killed()
killed_with_spark()
takes_one_slot()
task_callback_without_teardown()
dag_callback_without_teardown()
