"""Measure how long the tiering server has been unavailable, tell it, and decide when a waiting task gives up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from airflow_provider_fluss.outcome import Judgement, Verdict
from fluss_tiering.model.errors import SERVER_AWAY, FlussTieringError

_QUIET_SECONDS: Final = 60.0
"""So long an outage is not told again. Tasks ask every few seconds."""


class OutageTimer:
    """Measure one outage of the server at a time, and log it when it begins, once a minute, and when it ends.

    Args:
        tolerated_seconds: The longest outage that a waiting task tolerates.
        monotonic: A monotonic clock in seconds.
    """

    def __init__(self, tolerated_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._tolerated_seconds = tolerated_seconds
        self._monotonic = monotonic
        self._lost_at: float | None = None
        self._told_at = 0.0

    @property
    def lasts(self) -> bool:
        """Whether the server did not answer the last time."""
        return self._lost_at is not None

    def restore(self, log: Any) -> None:  # noqa: ANN401 - of the standard library or of structlog
        """Note that the server answered, which ends the outage."""
        if self._lost_at is not None:
            log.info("The tiering server answers again after %.0f s", self._monotonic() - self._lost_at)
        self._lost_at = None

    def lost(self, error: FlussTieringError, log: Any) -> Judgement | None:  # noqa: ANN401 - of one of the two
        """Note that the server did not answer. Return None to try again, or the judgement that ends the waiting.

        Args:
            error: Why there was no answer.
            log: The logger of the task or the trigger.

        Raises:
            FlussTieringError: `error` itself, unless it says that no active server answered.
        """
        if error.code not in SERVER_AWAY:
            raise error
        now = self._monotonic()
        is_new = self._lost_at is None
        if self._lost_at is None:
            self._lost_at = now
        outage = now - self._lost_at
        if outage <= self._tolerated_seconds:
            if is_new or now - self._told_at >= _QUIET_SECONDS:
                self._told_at = now
                log.warning("The tiering server is unavailable, trying again: %s", error.message)
            return None
        return Judgement(
            Verdict.UNREACHABLE, f"The tiering server has been unavailable for {outage:.0f} s: {error.message}"
        )
