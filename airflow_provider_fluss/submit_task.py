"""The task that submits the application, as the waiting sensor watches it.

A submit task that is killed reports nothing anywhere. If its application never claimed a table, no round exists whose
heartbeats could time out, and whoever waits for one would wait for ever. The same holds for a sensor that is cleared
alone: its acquire task runs again and begins an attempt under which nothing is ever submitted.
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
    """Watches one task instance.

    Args:
        dag_id: of the task.
        run_id: of the task.
        task_id: of the task.
        map_index: -1 for a task that is not mapped.
        claim_timeout: seconds after its success in which the application must have claimed its tables: with a cluster
            deploy mode it may start later than the task ends.
        monotonic: the clock, in seconds.
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
        """What it is made from, as JSON values."""
        return {
            "dag_id": self._dag_id,
            "run_id": self._run_id,
            "task_id": self._task_id,
            "map_index": self._map_index,
            "claim_timeout": self._claim_timeout,
        }

    def look(self) -> str | None:
        """How the task ended, once nothing more is to be expected of it; asks Airflow's API server."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # noqa: PLC0415

        states = RuntimeTaskInstance.get_task_states(
            dag_id=self._dag_id, run_ids=[self._run_id], task_ids=[self._task_id], map_index=self._map_index
        )
        # One task instance was asked for; whether its key carries the map index depends on whether it is mapped.
        return self.ended_in(next(iter(states.get(self._run_id, {}).values()), None))

    def ended_in(self, state: str | None) -> str | None:
        """What `look` says of a task that is seen in this state now."""
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
