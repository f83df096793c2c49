"""The tables that are tiered, found by id and by path, and when each of them is due."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.server.core.lake.backlogs import Backlogs
from fluss_tiering.server.core.tiering.states import TieredTable
from fluss_tiering.server.core.tiering.totals import RoundTotals

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


_MAX_INT64: Final = 2**63 - 1


class TieredTables:
    """The tables that are tiered. Only the control thread changes them.

    Args:
        totals: What maintenance has done for each table.

    Attributes:
        pending: The Pending tables by the time at which they became Pending: first in, first out.
        due: The tables that become Pending by themselves, by the time at which they do.
        withdrawn: The statuses of tables whose tiering was switched off, by table id. Their epochs continue when it is
            switched on again.
    """

    def __init__(self, backlogs: Backlogs, totals: RoundTotals) -> None:
        self._backlogs = backlogs
        self._totals = totals
        self._tables: dict[int, TieredTable] = {}
        # Only what changed is made anew, because many clients ask for all statuses.
        self._shown: dict[int, TieringStatus] = {}
        self._ids: dict[TablePath, int] = {}
        self._running: dict[int, None] = {}
        self._by_path: list[int] | None = None
        self._listed: Sequence[TieringStatus] | None = None
        self.pending = Schedule()
        self.due = Schedule()
        self.withdrawn: dict[int, TieringStatus] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def get(self, table_id: int) -> TieredTable | None:
        """Return the table with this id; None if it is not tiered."""
        return self._tables.get(table_id)

    def get_by_path(self, path: TablePath) -> TieredTable | None:
        """Return the table with this path; None if it is not tiered."""
        table_id = self._ids.get(path)
        return None if table_id is None else self._tables[table_id]

    def all(self) -> list[TieredTable]:
        """Return all tables. Any thread may call this, because the interpreter makes the copy in one step."""
        return list(self._tables.values())

    def running(self) -> Iterator[TieredTable]:
        """Yield the tables whose round runs."""
        return (self._tables[table_id] for table_id in list(self._running))

    def statuses(self) -> Sequence[TieringStatus]:
        """Return the statuses of all tables, as `shown` has them, in the order of their paths.

        It is the same object until one of them changes.
        """
        if self._listed is not None:
            return self._listed
        if self._by_path is None:
            # Strings compare many times faster than paths.
            paths = {table_id: (path.database, path.table) for path, table_id in self._ids.items()}
            self._by_path = sorted(paths, key=paths.__getitem__)
        shown = self._shown
        self._listed = [shown.get(table_id) or self._show(table_id) for table_id in self._by_path]
        return self._listed

    def shown(self, table_id: int) -> TieringStatus | None:
        """Return the status of a table as clients see it, with its backlog; None if the table is not tiered."""
        return self._shown.get(table_id) or (self._show(table_id) if table_id in self._tables else None)

    def shown_by_path(self, path: TablePath) -> TieringStatus | None:
        """Return the status of the table with this path: see `shown`."""
        table_id = self._ids.get(path)
        return None if table_id is None else self.shown(table_id)

    def look_at_backlogs(self, table_ids: Iterable[int]) -> list[int]:
        """Take over changed backlogs, and return the ids of those tables that are tiered."""
        tiered = []
        for table_id in table_ids:
            table = self._tables.get(table_id)
            if table is None:
                continue
            tiered.append(table_id)
            self._hide(table_id)
            may_wait = self._backlogs.may_wait(table_id)
            if may_wait is not table.may_wait:
                self.put(replace(table, may_wait=may_wait))
        return tiered

    def put(self, table: TieredTable) -> None:
        """Add or replace a table."""
        status = table.status
        table_id = status.table_id
        before = self._tables.get(table_id)
        self._tables[table_id] = table
        if before is None:
            self._ids[status.path] = table_id
            self._by_path = None
            self.withdrawn.pop(table_id, None)
        if (
            before is not None
            and before.status is status
            and before.freshness_ms == table.freshness_ms
            and before.due_time == table.due_time
        ):
            return  # only the time of the last heartbeat changed
        self._hide(table_id)
        self.pending.put(table_id, status.state_since if status.state is TieringState.PENDING else None)
        self.due.put(table_id, table.due_time)
        if table.round is None:
            self._running.pop(table_id, None)
        else:
            self._running[table_id] = None

    def show_maintenance(self, table_id: int) -> None:
        """Show in the status of a table what its totals now tell of its maintenance."""
        self._hide(table_id)

    def remove(self, table_id: int) -> None:
        """Remove a table."""
        self.withdrawn.pop(table_id, None)
        table = self._tables.pop(table_id, None)
        self._hide(table_id)
        if table is None:
            return
        if self._ids.get(table.status.path) == table_id:
            # Otherwise a newer table has the path already.
            del self._ids[table.status.path]
        self._by_path = None
        self._running.pop(table_id, None)
        self.pending.put(table_id, None)
        self.due.put(table_id, None)

    def _hide(self, table_id: int) -> None:
        self._shown.pop(table_id, None)
        self._listed = None

    def _show(self, table_id: int) -> TieringStatus:
        table, backlog = self._tables[table_id], self._backlogs.of(table_id)
        since = None
        if backlog is not None and backlog.records:
            since = table.tiered_time if backlog.since is None else backlog.since
        totals = self._totals.of(table_id)
        maintained = totals.maintained_time is not None
        shown = self._shown[table_id] = replace(
            table.status,
            records_waiting=None if backlog is None else backlog.records,
            waiting_since=since,
            next_round_time=table.next_round_time,
            freshness_ms=table.freshness_ms,
            last_maintained_time=totals.maintained_time,
            maintenance_saved_files=_shown_sum(totals.saved_files) if maintained else None,
            maintenance_rewritten_bytes=_shown_sum(totals.rewritten_bytes) if maintained else None,
            maintenance_expired_snapshots=_shown_sum(totals.expired_snapshots) if maintained else None,
            maintenance_deleted_files=_shown_sum(totals.deleted_files) if maintained else None,
            switched_on_time=table.switched_on_time,
        )
        return shown


def _shown_sum(total: int) -> int:
    """Return a total as an answer can hold it. A driver may report any number."""
    return min(total, _MAX_INT64)
