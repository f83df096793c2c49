"""What a person does in Airflow's user interface, by the same calls of the REST API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from examples.flights.airflow_api import AirflowApi


class AirflowControl(AirflowApi):
    """A client that also clears, marks and deletes."""

    def add_connection(self, name: str, port: int, *, kind: str = "fluss", host: str = "127.0.0.1") -> None:
        """Create a connection to a tiering server, or to a Spark cluster."""
        connection = {"connection_id": name, "conn_type": kind, "host": host, "port": port}
        if kind == "fluss":
            # Another name of this machine, for operators whose drivers could be elsewhere.
            connection["extra"] = json.dumps({"driver_server": f"localhost:{port}"})
        self._request("POST", "/connections", json=connection)

    def remove_connection(self, name: str) -> None:
        self._request("DELETE", f"/connections/{name}", missing_ok=True)

    def clear(
        self, dag_id: str, run_id: str, tasks: Sequence[str | tuple[str, int]] | None = None, *, only_failed: bool
    ) -> list[tuple[str, int]]:
        """Clear tasks with what is downstream of them, and return the task instances that were cleared.

        Args:
            tasks: The ids of tasks, or pairs of an id and a map index; None for all tasks of the run.
            only_failed: Whether only failed tasks are cleared.
        """
        body = {"dry_run": False, "dag_run_id": run_id, "only_failed": only_failed, "include_downstream": True}
        if tasks is not None:
            body["task_ids"] = [each if isinstance(each, str) else list(each) for each in tasks]
        answer = self._request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body).json()
        return [(each["task_id"], each["map_index"]) for each in answer["task_instances"]]

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        """Mark a task as failed or as success."""
        where = f"{task_id}/{map_index}" if map_index >= 0 else task_id
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{where}"
        self._request("PATCH", path, json={"new_state": state})

    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        """Mark a whole run as failed or as success."""
        self._request("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}", json={"state": state})

    def delete_run(self, dag_id: str, run_id: str) -> None:
        self._request("DELETE", f"/dags/{dag_id}/dagRuns/{run_id}")

    def has_run(self, dag_id: str, run_id: str) -> bool:
        return self._get(f"/dags/{dag_id}/dagRuns/{run_id}", missing_ok=True) is not None

    def log_events(
        self, dag_id: str, run_id: str, task_id: str, try_number: int, map_index: int
    ) -> list[dict[str, Any]]:
        """Return the events of the log of one try of a task."""
        lines = self.task_log(dag_id, run_id, task_id, try_number, map_index).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]
