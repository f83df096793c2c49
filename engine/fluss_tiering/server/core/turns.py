"""Watches how long calls hold the control thread. One that holds it for long makes heartbeats late."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""The upper bounds of the histogram of turns, in seconds."""
_WINDOW_S: Final = 60.0
_LOGGED_S: Final = 1.0

logger = structlog.get_logger(__name__)


class TurnWatch:
    """The durations of the turns of the control thread. One thread takes the turns, and any thread may read.

    Args:
        monotonic: A clock in seconds that never goes back.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._begun: float | None = None
        self._window_began = monotonic()
        self._longest = 0.0
        self._longest_before = 0.0
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._total_s = 0.0

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Measure one turn, and log it if it was very long.

        Args:
            name: The name of the function that runs, for the log.
        """
        began = self._begun = self._monotonic()
        try:
            yield
        finally:
            ended = self._monotonic()
            with self._lock:
                self._begun = None
                self._record(ended, ended - began)
            if ended - began > _LOGGED_S:
                logger.warning("control thread was held", function=name, seconds=round(ended - began, 3))

    def longest_s(self) -> float:
        """Return the longest turn of the last one to two minutes in seconds. The one that is under way counts too."""
        now = self._monotonic()
        with self._lock:
            self._roll(now)
            under_way = 0.0 if self._begun is None else now - self._begun
            return max(self._longest, self._longest_before, under_way)

    def histogram(self) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative counts of turns by upper bound in seconds, and the sum of all durations in seconds."""
        with self._lock:
            counts, total_s = list(self._counts), self._total_s
        cumulative: list[tuple[str, float]] = []
        count = 0
        for bound, each in zip((*map(str, BUCKETS_S), "+Inf"), counts, strict=True):
            count += each
            cumulative.append((bound, count))
        return cumulative, total_s

    def _record(self, now: float, duration_s: float) -> None:
        self._roll(now)
        self._longest = max(self._longest, duration_s)
        self._counts[bisect_left(BUCKETS_S, duration_s)] += 1
        self._total_s += duration_s

    def _roll(self, now: float) -> None:
        if now - self._window_began >= _WINDOW_S:
            recent = now - self._window_began < 2 * _WINDOW_S
            self._longest_before = self._longest if recent else 0.0
            self._longest, self._window_began = 0.0, now
