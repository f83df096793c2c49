"""Tables in the order of a time: which comes first and which are due is found without a search through all of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

_SLACK: Final = 64
"""The heap is built anew once it has this many entries more than twice the number of tables."""


class Schedule:
    """Table ids ordered by time, and by id where times are equal.

    A change takes O(log tables); to find that nothing is due takes O(1).
    """

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        # The heap holds outdated entries too: those that differ from `_times`. They are removed when they come to the
        # top, or all at once.
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[int]:
        return iter(self._times)

    def put(self, table_id: int, time: int | None) -> None:
        """Set a table's time; None removes the table."""
        if time is None:
            self._times.pop(table_id, None)
        elif self._times.get(table_id) != time:
            self._times[table_id] = time
            heapq.heappush(self._heap, (time, table_id))
        if len(self._heap) > 2 * len(self._times) + _SLACK:
            self._heap = [(each, id_) for id_, each in self._times.items()]
            heapq.heapify(self._heap)

    def first(self) -> int | None:
        """Return the table whose time comes first; None if there is no table."""
        self._drop_outdated()
        return self._heap[0][1] if self._heap else None

    def until(self, time: int) -> list[int]:
        """Return the tables whose time is not after this one, in order."""
        self._drop_outdated()
        found, looking = set(), [0]
        while looking:
            at = looking.pop()
            if at < len(self._heap) and self._heap[at][0] <= time:
                if self._is_current(self._heap[at]):
                    found.add(self._heap[at])
                looking += (2 * at + 1, 2 * at + 2)
        return [table_id for _, table_id in sorted(found)]

    def _drop_outdated(self) -> None:
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_current(self, entry: tuple[int, int]) -> bool:
        return self._times.get(entry[1]) == entry[0]
