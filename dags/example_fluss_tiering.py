"""Tiers every Fluss table that is pending into Iceberg, many tables to one Spark application."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import Param, dag, task, task_group

from airflow_provider_fluss.callbacks import release_lease_on_failure
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor

MAX_APPLICATIONS = 4
"""How many Spark applications run at once. The other batches wait in the scheduler, however many there are."""

DOC = """
### Fluss tiering

Takes the tables that the tiering server has as **Pending**, the longest waiting first, and tiers them in batches:

1. **acquire** leases the KV snapshots that the round will read, under an id that every try of the task shares;
2. **submit** runs one Spark application for the whole batch, of at most four batches at once, while
3. **wait** is deferred until each table of the batch has been tiered, and names those that could not be;
4. **release** gives the lease up, whatever happened before, and makes the run green if all tables were tiered.

Its schedule should not be longer than your tables' `table.datalake.freshness`. Its connections are chosen by its
parameters: a `fluss` connection to the tiering server and a `spark` connection.
"""


@dag(
    dag_id="fluss_tiering",
    schedule="*/3 * * * *",
    catchup=False,
    max_active_runs=1,  # two runs would pick the same pending tables
    tags=["example", "fluss", "iceberg"],
    doc_md=DOC,
    params={
        "fluss_conn_id": Param("fluss_default", type="string", description="Connection of the tiering server"),
        "spark_conn_id": Param("spark_default", type="string", description="Connection of Spark"),
        "batch_size": Param(
            50, type="integer", minimum=1, maximum=50, description="How many tables one Spark application tiers"
        ),
    },
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
        "on_failure_callback": release_lease_on_failure,
    },
    on_failure_callback=release_lease_on_failure,
)
def fluss_tiering() -> None:
    @task
    def pending_batches(params: dict[str, object]) -> list[list[str]]:
        """The pending tables with new rows, in batches; skipped, with all that follows, when there are none."""
        from fluss_tiering import TieringState, finish_unchanged_tables  # noqa: PLC0415

        with FlussHook(str(params["fluss_conn_id"])).get_client() as client:
            pending = [each for each in client.list_tiering_statuses() if each.state is TieringState.PENDING]
            # Tables without new rows need no Spark.
            unchanged = finish_unchanged_tables(client, pending)
            pending = [each for each in pending if each.path not in unchanged]
        if not pending:
            raise AirflowSkipException("No table is pending")
        tables = [str(each.path) for each in sorted(pending, key=lambda each: each.state_since)]
        size = int(str(params["batch_size"]))
        return [tables[start : start + size] for start in range(0, len(tables), size)]

    @task_group
    def tier(tables: list[str]) -> None:
        acquire = FlussAcquireKvSnapshotLeaseOperator(
            task_id="acquire", tables=tables, fluss_conn_id="{{ params.fluss_conn_id }}"
        )
        submit = FlussTieringSparkOperator(
            task_id="submit",
            lease=acquire.output,
            conn_id="{{ params.spark_conn_id }}",
            max_active_tis_per_dagrun=MAX_APPLICATIONS,
        )
        wait = FlussTieringStatusSensor(
            task_id="wait",
            lease=acquire.output,
            submit_task_id=submit.task_id,
            timeout=timedelta(hours=6),
        )
        release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
        acquire >> [submit, wait] >> release.as_teardown(setups=acquire, on_failure_fail_dagrun=True)

    tier.expand(tables=pending_batches())


fluss_tiering()
