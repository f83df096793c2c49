"""Bounds the lines about refused calls, so that nobody fills the disk with what they may not do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

REFUSED_LINES: Final = 100
"""The number of refused calls of one kind that have lines of their own, until the others are summarized."""
_SUMMARY_S: Final = 10.0
_MAX_KINDS: Final = 1000

ToldT = TypeVar("ToldT")


@dataclass(slots=True)
class _Kind(Generic[ToldT]):
    told: ToldT
    count: int = 0


class RefusedCalls(Generic[ToldT]):
    """Counts the refused calls of each kind that get no line of their own. It is used on the event loop only.

    Args:
        summarize: Writes a line about further refused calls of a kind: what is told of the kind, and how many.
    """

    def __init__(self, summarize: Callable[[ToldT, int], None]) -> None:
        self._summarize = summarize
        self._kinds: dict[str, _Kind[ToldT]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def has_line(self, kind: str, told: ToldT) -> bool:
        """Count a refused call, and return whether it gets a line of its own.

        Args:
            kind: What counts as the same kind, for example the name of the caller.
            told: What is told of the kind.
        """
        if kind not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            self.flush()
        seen = self._kinds.setdefault(kind, _Kind(told))
        seen.count += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SUMMARY_S, self.flush)
        return seen.count <= REFUSED_LINES

    def flush(self) -> None:
        """Write the lines about the calls that had none of their own, and begin anew."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kinds, self._kinds = self._kinds, {}
        for each in kinds.values():
            if each.count > REFUSED_LINES:
                self._summarize(each.told, each.count - REFUSED_LINES)
