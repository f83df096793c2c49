"""The clock that managers are given, so that tests can set the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

_CATCH_UP_DIVISOR: Final = 20
"""The clock catches up with the machine's by one part in this many of the time that passes."""


class Clock(Protocol):
    """A clock that counts milliseconds since the epoch, as Fluss's timestamps do."""

    def now_ms(self) -> int:
        """Return the present time in milliseconds since the epoch."""
        ...


def uptime_ns() -> int:
    """Return the time since the machine started, in nanoseconds. The time in which it was suspended counts too."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)  # only Linux has it
    return time.monotonic_ns() if boottime is None else time.clock_gettime_ns(boottime)


def uptime_s() -> float:
    """Return the time since the machine started, in seconds, like `uptime_ns`."""
    return uptime_ns() / 1e9


class SystemClock:
    """The machine's own clock at the start, which then never jumps: it follows the machine's clock slowly.

    When somebody or a time service sets the machine's clock, what waits for a time would otherwise end at once, or much
    too late: time-outs, freshness, back-offs and leases. This clock gains or loses 3 minutes in an hour until it agrees
    with the machine's again. Any thread may use it.

    Args:
        wall_ns: The machine's clock: nanoseconds since the epoch. It may be set.
        steady_ns: A clock in nanoseconds that cannot be set.
    """

    def __init__(self, wall_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = uptime_ns) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._lock = threading.Lock()
        self._now_ns = wall_ns()
        self._seen_ns = steady_ns()

    def now_ms(self) -> int:
        """Return the present time in milliseconds since the epoch, which is never before an earlier answer."""
        with self._lock:
            steady = self._steady_ns()
            passed, self._seen_ns = steady - self._seen_ns, steady
            behind = self._wall_ns() - self._now_ns - passed
            largest_step = passed // _CATCH_UP_DIVISOR
            self._now_ns += passed + max(-largest_step, min(behind, largest_step))
            return self._now_ns // 1_000_000

    def behind_ms(self) -> int:
        """Return how far this clock is behind the machine's clock, in milliseconds; below zero if it is ahead."""
        return self._wall_ns() // 1_000_000 - self.now_ms()


def iso_time(time_ms: int) -> str:
    """Return milliseconds since the epoch as ISO 8601 in UTC, without fractions of a second."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
