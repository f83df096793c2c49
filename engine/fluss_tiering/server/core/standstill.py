"""Notices that this server stood still: it was suspended, its machine was overloaded, or its database did not answer.

Clients could not reach it meanwhile, so that their silence in that time says nothing about them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import structlog

from fluss_tiering.model.clock import uptime_s

_NOTICED_MS: Final = 1000
"""A pause that is shorter is normal on a busy machine."""

T = TypeVar("T")

logger = structlog.get_logger(__name__)


class Standstill:
    """Notices pauses of the control thread. It is used in the control thread only.

    Args:
        interval_ms: The time between two looks while nothing stands still, in ms.
        allow: Called with the length of a pause, in ms. Each adds it to the time that clients have.
        seconds: A clock in seconds that cannot be set.
    """

    def __init__(
        self, interval_ms: int, allow: Sequence[Callable[[int], None]], seconds: Callable[[], float] = uptime_s
    ) -> None:
        self._interval_ms = interval_ms
        self._allow = allow
        self._seconds = seconds
        self._seen = seconds()

    def look(self) -> None:
        """Notice a pause that has just ended. Call this once in an interval, and before clients are found silent."""
        now = self._seconds()
        pause_ms, self._seen = round((now - self._seen) * 1000) - self._interval_ms, now
        if pause_ms >= _NOTICED_MS:
            logger.warning("server stood still: clients get the time back", ms=pause_ms)
            for allow in self._allow:
                allow(pause_ms)

    def before(self, function: Callable[[], T]) -> Callable[[], T]:
        """Return a function that looks first."""

        def looking() -> T:
            self.look()
            return function()

        return looking
