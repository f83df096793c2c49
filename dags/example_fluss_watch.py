"""Fails while a Fluss table is parked or lags far behind, so that Airflow tells somebody."""

from __future__ import annotations

import time

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Param, dag, task

from airflow_provider_fluss.alerts import DEFAULT_LAG_FACTOR, alerts
from airflow_provider_fluss.hooks.fluss import FlussHook

DOC = """
### Watch of Fluss tables

Looks at the status of every table that is tiered. The task fails, and names the tables, while

- a table is **parked**, because it failed too often in a row, or
- the oldest row that is not in the lake has waited for longer than `lag_factor` times the freshness of the table.

Rounds that were interrupted raise no alert: their tables are tried again by themselves.

Give it an `on_failure_callback` that tells somebody: a notifier of Airflow,
for example for mail or Slack. The error of the task has the whole message.
"""


@dag(
    dag_id="fluss_watch",
    schedule="*/15 * * * *",
    catchup=False,
    max_active_runs=1,
    tags=["example", "fluss", "iceberg"],
    doc_md=DOC,
    params={
        "fluss_conn_id": Param("fluss_default", type="string", description="Connection of the tiering server"),
        "lag_factor": Param(
            DEFAULT_LAG_FACTOR,
            type="number",
            minimum=1,
            description="How many times its freshness a table may lag behind",
        ),
    },
)
def fluss_watch() -> None:
    @task
    def look(params: dict[str, object]) -> int:
        """Return the number of tables, or fail with one line for each that needs somebody."""
        statuses = FlussHook(str(params["fluss_conn_id"])).list_tiering_statuses()
        found = alerts(statuses, time.time_ns() // 1_000_000, float(str(params["lag_factor"])))
        if found:
            tables = f"tables that need somebody: {len(found)} of {len(statuses)}"
            # Another try would see the same.
            raise AirflowFailException("\n".join([tables, *(f"- {text}" for text in found)]))
        return len(statuses)

    look()


fluss_watch()
