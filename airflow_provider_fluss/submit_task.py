"""Watch the submit task on behalf of the waiting sensor.

A submit task that is killed reports nothing. If its application never claimed a table, there is no round whose
heartbeats could time out, and the sensor would wait for ever. The same would happen when somebody clears only the
sensor: Airflow then runs the acquire task again, which begins an attempt under which no application is submitted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from airflow.sdk import TaskInstanceState

_UNSUCCESSFUL: Final = frozenset(
    {
        TaskInstanceState.FAILED.value,
        TaskInstanceState.UPSTREAM_FAILED.value,
        TaskInstanceState.SKIPPED.value,
        TaskInstanceState.REMOVED.value,
    }
)


class SubmitTask:
    """Watch one instance of the submit task.

    Args:
        dag_id: The DAG of the task.
        run_id: The DAG run of the task.
        task_id: The id of the task.
        map_index: The map index of the task, or -1 for a task that is not mapped.
        claim_timeout: The time in seconds after the success of the task in which the application must claim its tables.
            In cluster deploy mode the application may start after the task has ended.
        monotonic: A monotonic clock in seconds.
    """

    def __init__(
        self,
        *,
        dag_id: str,
        run_id: str,
        task_id: str,
        map_index: int,
        claim_timeout: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dag_id = dag_id
        self._run_id = run_id
        self._task_id = task_id
        self._map_index = map_index
        self._claim_timeout = claim_timeout
        self._monotonic = monotonic
        self._succeeded_at: float | None = None

    def to_kwargs(self) -> dict[str, Any]:
        """Return the arguments of this object as JSON values."""
        return {
            "dag_id": self._dag_id,
            "run_id": self._run_id,
            "task_id": self._task_id,
            "map_index": self._map_index,
            "claim_timeout": self._claim_timeout,
        }

    def look(self) -> str | None:
        """Return how the task ended, or None while it may still submit or claim. This asks Airflow's API server."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # noqa: PLC0415

        states = RuntimeTaskInstance.get_task_states(
            dag_id=self._dag_id, run_ids=[self._run_id], task_ids=[self._task_id], map_index=self._map_index
        )
        # The answer has one task instance. Its key carries the map index only if the task is mapped.
        return self.ended_in(next(iter(states.get(self._run_id, {}).values()), None))

    def ended_in(self, state: str | None) -> str | None:
        """Return what `look` returns for a task that is in this state now."""
        if state in _UNSUCCESSFUL:
            return str(state)
        if state != TaskInstanceState.SUCCESS.value:
            self._succeeded_at = None
            return None
        now = self._monotonic()
        if self._succeeded_at is None:
            self._succeeded_at = now
        waited = now - self._succeeded_at
        return f"{state} {waited:.0f} s ago" if waited > self._claim_timeout else None
