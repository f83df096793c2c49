"""Addresses below the base URL of Airflow's API server: of the page, and of what belongs to a round."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from fluss_tiering.model.tiering import RoundOrigin

ROUTE: Final = "lake-tiering"
"""The page itself is at `/lake-tiering/`; within Airflow's navigation it is at `/plugin/lake-tiering`."""


def dag_run_href(origin: RoundOrigin) -> str | None:
    """Return the address of the DAG run that started a round, relative to Airflow's base URL; None without one."""
    if not origin.dag_id or not origin.run_id:
        return None
    return f"dags/{quote(origin.dag_id, safe='')}/runs/{quote(origin.run_id, safe='')}"


def task_log_href(origin: RoundOrigin) -> str | None:
    """Return the address of the log of the task that started a round, as `dag_run_href` does."""
    run = dag_run_href(origin)
    if run is None or not origin.task_id:
        return None
    mapped = "" if origin.map_index is None else f"/mapped/{origin.map_index}"
    tried = f"?try_number={origin.try_number}" if origin.try_number else ""
    return f"{run}/tasks/{quote(origin.task_id, safe='')}{mapped}{tried}"
