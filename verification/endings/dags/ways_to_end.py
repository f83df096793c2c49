"""The tasks of the main DAG for the tables that a run names, with the tries and the time-outs that a test needs."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from airflow_provider_fluss.callbacks import release_lease_on_failure
from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor

PARAMS = {"tables": [], "fluss_conn_id": "fluss_default", "spark_conn_id": "spark_default"}


def way(dag_id: str, *, retries: int = 2, deferrable: bool = True, wait_seconds: float = 3600) -> None:
    @dag(
        dag_id=dag_id,
        schedule=None,
        params=PARAMS,
        render_template_as_native_obj=True,
        default_args={
            "retries": retries,
            "retry_delay": timedelta(seconds=20),
            "on_failure_callback": release_lease_on_failure,
        },
        on_failure_callback=release_lease_on_failure,
    )
    def tasks() -> None:
        acquire = FlussAcquireKvSnapshotLeaseOperator(
            task_id="acquire", tables="{{ params.tables }}", fluss_conn_id="{{ params.fluss_conn_id }}"
        )
        submit = FlussTieringSparkOperator(task_id="submit", lease=acquire.output, conn_id="{{ params.spark_conn_id }}")
        wait = FlussTieringStatusSensor(
            task_id="wait",
            lease=acquire.output,
            submit_task_id=submit.task_id,
            deferrable=deferrable,
            poke_interval=1,
            timeout=wait_seconds,
        )
        release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
        acquire >> [submit, wait] >> release.as_teardown(setups=acquire, on_failure_fail_dagrun=True)

    tasks()


way("way")
way("way_with_one_try", retries=0)
way("way_that_pokes", deferrable=False)
way("way_that_times_out", retries=0, wait_seconds=40)
