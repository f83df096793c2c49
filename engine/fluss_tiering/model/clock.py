"""The clock that managers are given, so that tests can turn it by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds since the epoch, as Fluss's timestamps are."""

    def now_ms(self) -> int:
        """The present."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """The present."""
        return time.time_ns() // 1_000_000
