"""The states of tasks, which Airflow tells. The triggers of one event loop ask for them together."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from airflow.sdk import TaskInstanceState
from asgiref.sync import sync_to_async

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

MARKED: Final = frozenset(
    {
        TaskInstanceState.FAILED.value,
        TaskInstanceState.SUCCESS.value,
        TaskInstanceState.SKIPPED.value,
        TaskInstanceState.REMOVED.value,
    }
)
"""The states that a person gives to a task that has not ended. A cleared task has no such state."""

CLEARED: Final = frozenset(
    {
        TaskInstanceState.RESTARTING.value,
        TaskInstanceState.SCHEDULED.value,
        TaskInstanceState.QUEUED.value,
    }
)
"""The states of a task that a person cleared while it ran. A try follows, also if the task had none left."""

KILL_SECONDS: Final = 3.0
"""How long `on_kill` of a task may ask others. Airflow kills the process five seconds after it asked it to end."""


@dataclass(frozen=True, slots=True)
class TaskInstanceKey:
    """What names a task instance.

    Attributes:
        dag_id: The id of the DAG.
        run_id: The id of the DAG run.
        task_id: The id of the task.
        map_index: The map index of the task, or -1 for a task that is not mapped.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int

    @classmethod
    def of(cls, ti: Any) -> TaskInstanceKey:  # noqa: ANN401 - tasks and triggers have different types of it
        """Return the key of a task instance."""
        return cls(ti.dag_id, ti.run_id, ti.task_id, -1 if ti.map_index is None else ti.map_index)

    @property
    def index(self) -> int | None:
        """The map index as XComs take it: None for a task that is not mapped."""
        return self.map_index if self.map_index >= 0 else None

    def in_states(self, states: Mapping[str, str | None]) -> str | None:
        """Return the state of this task instance among those that `task_states` returned.

        It is None if the task waits for the scheduler, was cleared, or is not known.
        """
        # Before a mapped task is expanded, it has one instance without a map index.
        return states.get(f"{self.task_id}_{self.map_index}", states.get(self.task_id))

    def state(self) -> str | None:
        """Ask Airflow for the state of this task instance; see `in_states`."""
        return self.in_states(task_states(self.dag_id, self.run_id, self.task_id))


def task_states(dag_id: str, run_id: str, *task_ids: str) -> dict[str, str | None]:
    """Ask Airflow's API server for the states of all instances of tasks in a run, through the supervisor.

    The names are those of Airflow: the id of the task, with an underscore and the map index if it is mapped.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # noqa: PLC0415

    states = RuntimeTaskInstance.get_task_states(dag_id=dag_id, run_ids=[run_id], task_ids=list(task_ids))
    found: dict[str, str | None] = states.get(run_id, {})
    return found


def runs_alone() -> bool:
    """Return whether no other task of the DAG run can run before this one has ended, as in `airflow dags test`."""
    from airflow.sdk.execution_time import supervisor, task_runner  # noqa: PLC0415

    return isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), supervisor.InProcessSupervisorComms)


def within(seconds: float, action: Callable[[], None], log: Logger | logging.Logger, what: str) -> None:
    """Run an action in a thread, wait for it no longer than this, and log an error instead of raising it.

    A signal handler needs the thread: it may have interrupted a question to the supervisor, which holds a lock.

    Args:
        seconds: The longest wait in seconds.
        action: What to do.
        log: The logger for errors.
        what: What the action does, in the words of the log.
    """

    def run() -> None:
        try:
            action()
        except Exception:
            log.exception("%s: this failed", what)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="fluss-within", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        log.warning("%s: this took longer than %g s and is not waited for", what, seconds)


class SharedTaskStates:
    """The states of all instances of a task in a run, asked for no more often than the triggers need.

    Args:
        key: One of the instances.
    """

    def __init__(self, key: TaskInstanceKey) -> None:
        self._key = key
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._states: dict[str, str | None] = {}

    @classmethod
    def of(cls, key: TaskInstanceKey) -> SharedTaskStates:
        """Return the states that all instances of this task have in common in this event loop."""
        here = (asyncio.get_running_loop(), replace(key, map_index=-1))
        states = _SHARED.get(here)
        if states is None:
            states = _SHARED[here] = cls(key)
        return states

    async def since(self, time: float) -> dict[str, str | None]:
        """Return states that are not older than this time, as `task_states` names them.

        Args:
            time: A time of the event loop in seconds.
        """
        async with self._asking:
            if self._asked_at < time:
                asked_at = asyncio.get_running_loop().time()
                self._states = await sync_to_async(task_states)(self._key.dag_id, self._key.run_id, self._key.task_id)
                self._asked_at = asked_at
            return self._states


_SHARED: Final = WeakValueDictionary[tuple[asyncio.AbstractEventLoop, TaskInstanceKey], SharedTaskStates]()
"""The states for which a trigger waits, by its event loop."""
