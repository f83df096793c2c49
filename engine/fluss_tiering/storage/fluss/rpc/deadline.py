"""The deadline of a call, and the timeouts of its tries that follow from it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, Self

from fluss_tiering.storage.fluss.rpc.call import Call

_MAX_CONNECT_S: Final = 10.0
_TRIES: Final = 3
"""The time of a call is divided by this number of tries, so that a server that hangs is left for another one."""
_LAST_TRY_S: Final = 0.05
"""The least time that a try gets, even when the deadline has passed."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by which one call must be answered.

    Attributes:
        seconds: The time that the call may take in all.
        at: The deadline on the monotonic clock.
    """

    seconds: float
    at: float

    @classmethod
    def of(cls, seconds: float) -> Self:
        """Return the deadline that is this many seconds from now."""
        return cls(seconds, time.monotonic() + seconds)

    def connect_timeout(self) -> float:
        """Return how many seconds connecting and the handshake may take."""
        return min(self._left(), _MAX_CONNECT_S, self.seconds / _TRIES)

    def try_timeout(self, call: Call[Any, Any]) -> float:
        """Return how many seconds one try of a call may take.

        A call that must not be repeated has one try, which gets all the time that is left.
        """
        return min(self._left(), self.seconds / _TRIES) if call.repeatable else self._left()

    def _left(self) -> float:
        return max(self.at - time.monotonic(), _LAST_TRY_S)
