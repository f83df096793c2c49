"""Calls of the REST API of a running Airflow: start a DAG run, watch it, and read what its tasks returned."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Self

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_fixed

_ATTEMPTS: Final = 5
_ENDED: Final = frozenset({"success", "failed"})
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task instance.

    Attributes:
        task_id: The id of the task.
        map_index: The index of a mapped task; -1 for any other task.
        state: The state; None before the task is scheduled.
        try_number: The number of the try, from 1.
        pid: The process id of the running task, if there is one.
    """

    task_id: str
    map_index: int
    state: str | None
    try_number: int
    pid: int | None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read a task instance from an answer of the REST API."""
        return cls(value["task_id"], value["map_index"], value["state"], value["try_number"], value["pid"])


class AirflowApi:
    """A client of one Airflow, which asks for no login (`simple_auth_manager_all_admins`)."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)

    def answers(self) -> bool:
        """Return whether the API server answers."""
        return self._health() is not None

    def is_healthy(self, component: str) -> bool:
        """Return whether a component (scheduler, dag_processor or triggerer) sends its heartbeats."""
        health = self._health() or {}
        return (health.get(component) or {}).get("status") == "healthy"

    def wait_for_dag(self, dag_id: str, seconds: float = 600) -> None:
        """Wait until the DAG processor has put the DAG into the database, or raise TimeoutError."""
        deadline = time.monotonic() + seconds
        while self._get(f"/dags/{dag_id}", missing_ok=True) is None:
            if time.monotonic() > deadline:
                errors = self._get("/importErrors") or {}
                raise TimeoutError(f"DAG {dag_id} did not appear within {seconds:.0f} s: {errors.get('import_errors')}")
            time.sleep(_POLL_SECONDS)

    def trigger(self, dag_id: str, conf: Mapping[str, object] | None = None) -> str:
        """Start a run with these parameters and return its id."""
        answer = self._request("POST", f"/dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": dict(conf or {})})
        return str(answer.json()["dag_run_id"])

    def unpause(self, dag_id: str) -> None:
        """Switch the DAG on."""
        self._request("PATCH", f"/dags/{dag_id}", json={"is_paused": False})

    def connections(self) -> dict[str, str]:
        """Return the type of each connection in Airflow's database, which the user interface lists, by its id."""
        return {each["connection_id"]: each["conn_type"] for each in self._get("/connections")["connections"]}

    def run_ids(self, dag_id: str) -> list[str]:
        """Return the ids of the DAG's runs."""
        return [each["dag_run_id"] for each in self._get(f"/dags/{dag_id}/dagRuns")["dag_runs"]]

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the state of the run: queued, running, success or failed."""
        return str(self._get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def wait_for_run(self, dag_id: str, run_id: str, seconds: float = 600) -> str:
        """Wait until the run ends and return its state, or raise TimeoutError with the states of its tasks."""
        deadline = time.monotonic() + seconds
        while (state := self.run_state(dag_id, run_id)) not in _ENDED:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Run {run_id} of {dag_id} is {state}: {self.task_states(dag_id, run_id)}")
            time.sleep(_POLL_SECONDS)
        return state

    def task_states(self, dag_id: str, run_id: str) -> Sequence[TaskState]:
        """Return all task instances of a run."""
        answer = self._get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", params={"limit": 1000})
        return [TaskState.from_json(each) for each in answer["task_instances"]]

    def task_state(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> TaskState:
        """Return one task instance, or raise KeyError if there is none."""
        for each in self.task_states(dag_id, run_id):
            if (each.task_id, each.map_index) == (task_id, map_index):
                return each
        raise KeyError(f"{task_id} {map_index}")

    def xcom(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Any:  # noqa: ANN401 - any JSON value
        """Return what the task returned; None if that is nothing."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        answer = self._get(path, params={"map_index": map_index, "deserialize": True}, missing_ok=True)
        return answer and answer["value"]

    def mark_failed(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Mark a task as failed, as a person does in the user interface. A running task is ended."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        self._request("PATCH", path, json={"new_state": "failed"})

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """Return the log of one try of a task: a JSON object in each line."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        answer = self._get(path, params={"map_index": map_index, "full_content": True})
        return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in answer["content"])

    def links(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, str | None]:
        """Return the extra links of a task by their names; None where there is no address."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links"
        answer = self._get(path, params={"map_index": map_index})
        return dict(answer["extra_links"])

    def page(self, address: str) -> str:
        """Return the HTML of a page of this Airflow. The address is relative to the base URL.

        Raises:
            httpx.HTTPStatusError: The page does not exist or is refused.
        """
        return self._http.get(f"/{address}", headers={"Accept": "text/html"}).raise_for_status().text

    def _health(self) -> dict[str, Any] | None:
        try:
            answer = self._http.get("/api/v2/monitor/health")
        except httpx.TransportError:
            return None
        return answer.json() if answer.is_success else None

    def _get(self, path: str, *, params: Mapping[str, Any] | None = None, missing_ok: bool = False) -> Any:  # noqa: ANN401 - any JSON value
        answer = self._request("GET", path, params=params, missing_ok=missing_ok)
        return None if answer.status_code == HTTPStatus.NOT_FOUND else answer.json()

    def _request(self, method: str, path: str, *, missing_ok: bool = False, **arguments: Any) -> httpx.Response:
        if "Authorization" not in self._http.headers:
            token = self._http.get("/auth/token").raise_for_status().json()["access_token"]
            self._http.headers["Authorization"] = f"Bearer {token}"
        retrying = Retrying(
            # What changes nothing may be asked again: on a busy machine an answer may take its time.
            retry=retry_if_exception(lambda error: method == "GET" and isinstance(error, httpx.TransportError)),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_fixed(1),
            reraise=True,
        )
        answer = retrying(self._http.request, method, f"/api/v2{path}", **arguments)
        if missing_ok and answer.status_code == HTTPStatus.NOT_FOUND:
            return answer
        if answer.is_error:
            raise RuntimeError(f"Airflow answered {answer.status_code} to {method} {path}: {answer.text[:2000]}")
        return answer
