"""How long a call may take, and each of its tries."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, Self

from fluss_tiering.storage.fluss.rpc.call import Call

_MAX_CONNECT_S: Final = 10.0
_TRIES: Final = 3
"""For which the time of a call must do: a server that hangs is left for another."""
_LAST_TRY_S: Final = 0.05
"""A last try gets as far as it can in this."""


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The time of one call; `deadline` on the monotonic clock."""

    seconds: float
    deadline: float

    @classmethod
    def of(cls, seconds: float) -> Self:
        """So many from now on."""
        return cls(seconds, time.monotonic() + seconds)

    def to_connect(self) -> float:
        """Seconds for connecting and shaking hands."""
        return min(self._left(), _MAX_CONNECT_S, self.seconds / _TRIES)

    def for_try(self, call: Call[Any, Any]) -> float:
        """Seconds for the answer to a call, or to a question on its way; all that are left where it has one try."""
        return min(self._left(), self.seconds / _TRIES) if call.repeatable else self._left()

    def _left(self) -> float:
        return max(self.deadline - time.monotonic(), _LAST_TRY_S)
