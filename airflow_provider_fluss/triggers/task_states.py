"""The states of a task's instances, which the triggers of one event loop ask for together."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from asgiref.sync import sync_to_async

from airflow_provider_fluss.task_states import TaskInstanceKey, task_states


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
