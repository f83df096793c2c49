"""The task that submits the application, as the waiting sensor watches it.

A submit task that is killed reports nothing anywhere. If its application never claimed a table, no round exists whose
heartbeats could time out, and whoever waits for one would wait for ever.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from airflow.sdk import TaskInstanceState

ENDED_WITHOUT_SUCCESS: Final = frozenset(
    {
        TaskInstanceState.FAILED.value,
        TaskInstanceState.UPSTREAM_FAILED.value,
        TaskInstanceState.SKIPPED.value,
        TaskInstanceState.REMOVED.value,
    }
)


@dataclass(frozen=True, slots=True)
class SubmitTask:
    """Names the task instance. `map_index` is -1 for a task that is not mapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int

    def to_kwargs(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    def ended_without_success(self) -> str | None:
        """The state in which the task ended when that is not success; None while it may still do its work.

        Asks the API server; to be called in a task or a trigger.
        """
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # noqa: PLC0415

        states = RuntimeTaskInstance.get_task_states(
            dag_id=self.dag_id, run_ids=[self.run_id], task_ids=[self.task_id], map_index=self.map_index
        )
        # One task instance was asked for; its key carries the map index or not, depending on whether it is mapped.
        state = next(iter(states.get(self.run_id, {}).values()), None)
        return str(state) if state in ENDED_WITHOUT_SUCCESS else None
