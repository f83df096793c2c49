"""The clock that managers are given, so that tests can set the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A clock that counts milliseconds since the epoch, as Fluss's timestamps do."""

    def now_ms(self) -> int:
        """Return the present time in milliseconds since the epoch."""
        ...


class SystemClock:
    """The machine's own clock, except that it never jumps backward: it continues as if nothing had happened.

    If it did jump, time-outs, freshness and the ends of leases would all be late by as much as the clock was set back.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._ahead_ns = wall_ns() - monotonic_ns()

    def now_ms(self) -> int:
        """Return the present time in milliseconds since the epoch, which is never before an earlier answer."""
        monotonic = self._monotonic_ns()
        self._ahead_ns = max(self._ahead_ns, self._wall_ns() - monotonic)
        return (monotonic + self._ahead_ns) // 1_000_000
