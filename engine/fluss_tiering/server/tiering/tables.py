"""The tiered tables in memory, with indexes by id, path, time and running round."""

from __future__ import annotations

from collections.abc import Iterator

from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.server.tiering.schedule import Schedule
from fluss_tiering.server.tiering.states import TieredTable


class TieredTables:
    """The tables that are tiered. Only the control thread changes them.

    Attributes:
        pending: The Pending tables by the time at which they became Pending: first in, first out.
        due: The tables that become Pending by themselves, by the time at which they do.
        withdrawn: The statuses of tables whose tiering was switched off, by table id. Their epochs continue when it is
            switched on again.
    """

    def __init__(self) -> None:
        self._tables: dict[int, TieredTable] = {}
        self._ids: dict[TablePath, int] = {}
        self._running: dict[int, None] = {}
        self._by_path: list[int] | None = None
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

    def statuses(self) -> list[TieringStatus]:
        """Return the statuses of all tables in the order of their paths."""
        if self._by_path is None:
            # Strings compare many times faster than paths.
            paths = {table_id: (path.database, path.table) for path, table_id in self._ids.items()}
            self._by_path = sorted(paths, key=paths.__getitem__)
        return [self._tables[table_id].status for table_id in self._by_path]

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
        if before is not None and before.status is status and before.freshness_ms == table.freshness_ms:
            return  # only the time of the last heartbeat changed
        self.pending.put(table_id, status.state_since if status.state is TieringState.PENDING else None)
        self.due.put(table_id, table.due_time)
        if table.round is None:
            self._running.pop(table_id, None)
        else:
            self._running[table_id] = None

    def remove(self, table_id: int) -> None:
        """Remove a table."""
        self.withdrawn.pop(table_id, None)
        table = self._tables.pop(table_id, None)
        if table is None:
            return
        if self._ids.get(table.status.path) == table_id:
            # Otherwise a newer table has the path already.
            del self._ids[table.status.path]
        self._by_path = None
        self._running.pop(table_id, None)
        self.pending.put(table_id, None)
        self.due.put(table_id, None)
