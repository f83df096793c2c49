"""Maintains the lake tables whose options ask for it, every night."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag

from airflow_provider_fluss.operators.maintenance import FlussMaintainOperator

DOC = """
### Maintenance of lake tables

Does what is worth doing for the tables whose options ask for it:

- `table.datalake.auto-compaction=true`: small files, and files to which many delete files apply, are rewritten, and
  small manifests are merged;
- `table.datalake.auto-expire-snapshot=true`: old snapshots are expired with the files that only they need, and old
  files that no snapshot refers to are deleted.

Rounds and readers go on meanwhile. `max_bytes` bounds what one run rewrites of a table, and the next run does the rest.
The log says what was done for each table.
"""


@dag(
    dag_id="fluss_lake_maintenance",
    schedule="30 2 * * *",
    catchup=False,
    max_active_runs=1,  # two runs would rewrite the same files
    tags=["example", "fluss", "iceberg"],
    doc_md=DOC,
    params={
        "fluss_conn_id": Param("fluss_default", type="string", description="Connection of the tiering server"),
        "spark_conn_id": Param("spark_default", type="string", description="Connection of Spark"),
        "max_bytes": Param("10gb", type="string", description="How much of a table one run rewrites at most"),
        "cores": Param(1, type="integer", minimum=1, description="How many tasks rewrite files at the same time"),
    },
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
)
def fluss_lake_maintenance() -> None:
    FlussMaintainOperator(
        task_id="maintain",
        max_bytes="{{ params.max_bytes }}",
        cores="{{ params.cores }}",
        fluss_conn_id="{{ params.fluss_conn_id }}",
        conn_id="{{ params.spark_conn_id }}",
    )


fluss_lake_maintenance()
