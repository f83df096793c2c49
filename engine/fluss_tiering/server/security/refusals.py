"""Bounds the lines about refused calls, so that nobody fills the disk with what they may not do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fluss_tiering.server.security.rates import Rate

REFUSED_BURST: Final = 100
"""The number of refused calls of one kind that have lines of their own at once. After that it is one in a second."""
_PER_S: Final = 1.0
_SUMMARY_S: Final = 10.0
_MAX_COUNTED: Final = 1000

ToldT = TypeVar("ToldT")


@dataclass(slots=True)
class _Further(Generic[ToldT]):
    told: ToldT
    count: int = 0


class RefusedCalls(Generic[ToldT]):
    """Counts the refused calls of each kind that get no line of their own. It is used on the event loop only.

    Args:
        summarize: Writes a line about further refused calls of a kind: what is told of the kind, and how many.
        monotonic: A clock in seconds that never goes back.
    """

    def __init__(
        self, summarize: Callable[[ToldT, int], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._summarize = summarize
        self._rate = Rate(_PER_S, REFUSED_BURST, monotonic)
        self._further: dict[str, _Further[ToldT]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def has_line(self, kind: str, told: ToldT) -> bool:
        """Count a refused call, and return whether it gets a line of its own.

        Args:
            kind: What counts as the same kind, for example the name of the caller.
            told: What is told of the kind.
        """
        if not self._rate.wait_s(kind):
            return True
        if kind not in self._further and len(self._further) >= _MAX_COUNTED:
            self.flush()
        self._further.setdefault(kind, _Further(told)).count += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SUMMARY_S, self.flush)
        return False

    def flush(self) -> None:
        """Write the lines about the calls that have been counted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        further, self._further = self._further, {}
        for each in further.values():
            self._summarize(each.told, each.count)
