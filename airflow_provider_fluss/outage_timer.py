"""For how long a waiter puts up with a tiering server that cannot be reached, for example while it is restarted."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_provider_fluss.outcome import Judgement, Verdict
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


class OutageTimer:
    """Measures one spell of unavailability at a time.

    Args:
        tolerated_seconds: how long a spell may last.
        monotonic: the clock, in seconds.
    """

    def __init__(self, tolerated_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._tolerated_seconds = tolerated_seconds
        self._monotonic = monotonic
        self._lost_at: float | None = None

    def restore(self) -> None:
        """The server answered: the spell is over."""
        self._lost_at = None

    def lost(self, error: FlussTieringError) -> Judgement | None:
        """The server did not answer: None to try again, or the judgement that ends the waiting.

        Raises:
            FlussTieringError: `error` itself, when it says anything else than that the server is unavailable.
        """
        if error.code is not ErrorCode.UNAVAILABLE:
            raise error
        now = self._monotonic()
        if self._lost_at is None:
            self._lost_at = now
        spell = now - self._lost_at
        if spell <= self._tolerated_seconds:
            return None
        return Judgement(
            Verdict.UNREACHABLE, f"The tiering server has been unavailable for {spell:.0f} s: {error.message}"
        )
