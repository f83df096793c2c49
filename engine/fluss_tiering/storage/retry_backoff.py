"""Waiting for a server that is away, as long as what is read from it gets on in between."""

from __future__ import annotations

import random
import threading
import time
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

UNAVAILABLE_TIMEOUT_S: Final = 120.0
_FIRST_PAUSE_S: Final = 0.2
_MAX_PAUSE_S: Final = 5.0
_PASSING: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class RetryBackoff:
    """Waits for a server that is away or throttles, with back-off, as long as the reader gets on in between.

    One throttled split would otherwise fail its task, and a few of them the round (Fluss issue #4452).

    Args:
        stopped: set when nobody wants to read on, which ends a wait.
        seconds: how long failures may follow each other.
    """

    def __init__(self, stopped: threading.Event | None = None, seconds: float = UNAVAILABLE_TIMEOUT_S) -> None:
        self._stopped = stopped or threading.Event()
        self._seconds = seconds
        self._failures = 0
        self._give_up_at = 0.0

    def restore(self) -> None:
        """Something arrived."""
        self._failures = 0

    def wait_after(self, error: FlussTieringError) -> None:
        """Sleeps before the next try; raises what is no passing failure, or has lasted too long."""
        if self._failures == 0:
            self._give_up_at = time.monotonic() + self._seconds
        if error.code not in _PASSING or time.monotonic() >= self._give_up_at:
            raise error
        pause = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2**self._failures)
        self._failures += 1
        # Between half and all of it spreads the callers out.
        if self._stopped.wait(random.uniform(pause / 2, pause)):  # noqa: S311
            raise error
