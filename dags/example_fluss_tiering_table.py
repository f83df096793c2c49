"""Tiers one Fluss table, named by a parameter, into Iceberg, whether it is pending or not."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag

from airflow_provider_fluss.callbacks import release_lease_on_failure
from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor

DOC = """
### Fluss tiering of one table

The four tasks of `fluss_tiering` for the table given as `table`: once a day, and whenever you trigger it, for example
to try a table out. The round does not wait for the table's freshness, nor for its back-off after a failure.
"""


@dag(
    dag_id="fluss_tiering_table",
    schedule="@daily",
    catchup=False,
    tags=["example", "fluss", "iceberg"],
    doc_md=DOC,
    params={
        "table": Param(
            "shop.orders",
            type="string",
            pattern=r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$",
            description="DATABASE.TABLE, for example shop.orders",
        ),
        "fluss_conn_id": Param("fluss_default", type="string", description="Connection of the tiering server"),
        "spark_conn_id": Param("spark_default", type="string", description="Connection of Spark"),
    },
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
        "on_failure_callback": release_lease_on_failure,
    },
    on_failure_callback=release_lease_on_failure,
)
def fluss_tiering_table() -> None:
    acquire = FlussAcquireKvSnapshotLeaseOperator(
        task_id="acquire", tables=["{{ params.table }}"], fluss_conn_id="{{ params.fluss_conn_id }}"
    )
    submit = FlussTieringSparkOperator(task_id="submit", lease=acquire.output, conn_id="{{ params.spark_conn_id }}")
    wait = FlussTieringStatusSensor(
        task_id="wait",
        lease=acquire.output,
        submit_task_id=submit.task_id,
        timeout=timedelta(hours=6),
    )
    release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
    acquire >> [submit, wait] >> release.as_teardown(setups=acquire, on_failure_fail_dagrun=True)


fluss_tiering_table()
