"""The clock that managers are given, so that tests can turn it by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Milliseconds since the epoch, as Fluss's timestamps are."""

    def now_ms(self) -> int:
        """The present."""
        ...


class SystemClock:
    """The machine's own clock, but for jumps backward: then it goes on as if there had been none.

    Otherwise time-outs, freshness and leases would all be late by as much as somebody sets the clock back.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._ahead_ns = wall_ns() - monotonic_ns()

    def now_ms(self) -> int:
        """The present; never before an earlier answer."""
        monotonic = self._monotonic_ns()
        self._ahead_ns = max(self._ahead_ns, self._wall_ns() - monotonic)
        return (monotonic + self._ahead_ns) // 1_000_000
