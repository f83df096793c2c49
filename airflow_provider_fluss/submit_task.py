"""Watch the submit task on behalf of the waiting sensor.

The sensor decides that tables were not tiered only once the submit task has ended. Until then, its next try may still
tier them. A submit task that is killed reports nothing: if its application never claimed a table, there is no round
whose heartbeats could time out, and the sensor would wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from airflow.sdk import TaskInstanceState

from airflow_provider_fluss.task_states import TaskInstanceKey, task_states

ENDED: Final = frozenset(
    {
        TaskInstanceState.FAILED.value,
        TaskInstanceState.REMOVED.value,
        TaskInstanceState.SKIPPED.value,
        TaskInstanceState.SUCCESS.value,
        TaskInstanceState.UPSTREAM_FAILED.value,
    }
)
"""The states in which a task does nothing more, unless a person clears it."""


@dataclass(frozen=True, slots=True)
class SubmitState:
    """What the submit task may still do.

    Attributes:
        words: The state of the task, in words.
        ended: Whether the task has ended.
        claims_over: Whether its application will claim no further table.
    """

    words: str
    ended: bool
    claims_over: bool


MAY_SUBMIT: Final = SubmitState("has not ended", ended=False, claims_over=False)
"""A submit task that has not been looked at yet."""
HAS_SUBMITTED: Final = SubmitState("has submitted", ended=True, claims_over=False)
"""The submit task's own view once its program has ended. In cluster deploy mode the application may start later."""


class SubmitTask:
    """Watch one instance of the submit task.

    Args:
        key: The instance.
        claim_timeout: The time in seconds after the success of the task in which the application must claim its tables.
            In cluster deploy mode the application may start after the task has ended.
        monotonic: A monotonic clock in seconds.

    Attributes:
        is_deferred: Whether the task was deferred when it was last looked at.
        was_marked_failed: Whether a person marked it as failed while it was deferred, so that it could not end its
            rounds. It ends them itself if its job fails.
    """

    def __init__(
        self, key: TaskInstanceKey, claim_timeout: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.key = key
        self._claim_timeout = claim_timeout
        self._monotonic = monotonic
        self._succeeded_at: float | None = None
        self.is_deferred = False
        self.was_marked_failed = False

    def to_kwargs(self) -> dict[str, Any]:
        """Return the arguments of `from_kwargs` as JSON values."""
        return {**asdict(self.key), "claim_timeout": self._claim_timeout}

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> Self:
        """Return the object that `to_kwargs` described."""
        values = dict(kwargs)
        claim_timeout = values.pop("claim_timeout")
        return cls(TaskInstanceKey(**values), claim_timeout)

    @property
    def counts_down(self) -> bool:
        """Whether the task has succeeded, so that the time for claims passes."""
        return self._succeeded_at is not None

    def look(self) -> SubmitState:
        """Return what the task may still do. This asks Airflow's API server."""
        return self.seen_in(task_states(self.key.dag_id, self.key.run_id, self.key.task_id))

    def seen_in(self, states: Mapping[str, str | None]) -> SubmitState:
        """Return what the task may still do, if these are the states of all instances of the task."""
        state = self.key.in_states(states)
        self.was_marked_failed = self.is_deferred and state == TaskInstanceState.FAILED.value
        self.is_deferred = state == TaskInstanceState.DEFERRED.value
        if state is None or state not in ENDED:
            self._succeeded_at = None
            return SubmitState(f"is {state}" if state else "waits for the scheduler", ended=False, claims_over=False)
        if state != TaskInstanceState.SUCCESS.value:
            return SubmitState(state, ended=True, claims_over=True)
        now = self._monotonic()
        if self._succeeded_at is None:
            self._succeeded_at = now
        waited = now - self._succeeded_at
        if waited > self._claim_timeout:
            return SubmitState(f"{state} {waited:.0f} s ago", ended=True, claims_over=True)
        return SubmitState("has succeeded", ended=True, claims_over=False)
