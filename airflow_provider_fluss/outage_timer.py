"""Measure how long the tiering server has been unavailable, and decide when a waiting task gives up."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_provider_fluss.outcome import Judgement, Verdict
from fluss_tiering.model.errors import SERVER_AWAY, FlussTieringError


class OutageTimer:
    """Measure one outage of the server at a time.

    Args:
        tolerated_seconds: The longest outage that a waiting task tolerates.
        monotonic: A monotonic clock in seconds.
    """

    def __init__(self, tolerated_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._tolerated_seconds = tolerated_seconds
        self._monotonic = monotonic
        self._lost_at: float | None = None

    @property
    def lasts(self) -> bool:
        """Whether the server did not answer the last time."""
        return self._lost_at is not None

    def restore(self) -> None:
        """Note that the server answered, which ends the outage."""
        self._lost_at = None

    def lost(self, error: FlussTieringError) -> Judgement | None:
        """Note that the server did not answer. Return None to try again, or the judgement that ends the waiting.

        Raises:
            FlussTieringError: `error` itself, unless it says that no active server answered.
        """
        if error.code not in SERVER_AWAY:
            raise error
        now = self._monotonic()
        if self._lost_at is None:
            self._lost_at = now
        outage = now - self._lost_at
        if outage <= self._tolerated_seconds:
            return None
        return Judgement(
            Verdict.UNREACHABLE, f"The tiering server has been unavailable for {outage:.0f} s: {error.message}"
        )
