"""Tables in the order of a time: which is first, and which are due, without a look at all of them."""

from __future__ import annotations

import heapq
from typing import Final

_SLACK: Final = 64
"""Entries that a heap may have beyond twice those that count before it is built anew."""


class Schedule:
    """Table ids by time, and by id where times are equal; O(log tables) a change, O(1) while nothing is due."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        # Holds outdated entries too, which `_times` tells apart: they go when they come to the top, or all at once.
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._times)

    def put(self, table_id: int, time: int | None) -> None:
        """Sets a table's time; None takes it out."""
        if time is None:
            self._times.pop(table_id, None)
        elif self._times.get(table_id) != time:
            self._times[table_id] = time
            heapq.heappush(self._heap, (time, table_id))
        if len(self._heap) > 2 * len(self._times) + _SLACK:
            self._heap = [(each, id_) for id_, each in self._times.items()]
            heapq.heapify(self._heap)

    def first(self) -> int | None:
        """The table whose time comes first."""
        self._drop_outdated()
        return self._heap[0][1] if self._heap else None

    def until(self, time: int) -> list[int]:
        """The tables whose time is not after this one, in order."""
        self._drop_outdated()
        found, looking = set(), [0]
        while looking:
            at = looking.pop()
            if at < len(self._heap) and self._heap[at][0] <= time:
                if self._counts(self._heap[at]):
                    found.add(self._heap[at])
                looking += (2 * at + 1, 2 * at + 2)
        return [table_id for _, table_id in sorted(found)]

    def _drop_outdated(self) -> None:
        while self._heap and not self._counts(self._heap[0]):
            heapq.heappop(self._heap)

    def _counts(self, entry: tuple[int, int]) -> bool:
        return self._times.get(entry[1]) == entry[0]
