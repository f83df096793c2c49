"""The tables that are tiered, as they stand, found by id, path, time and running round without a look at all."""

from __future__ import annotations

from collections.abc import Iterator

from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.server.tiering.schedule import Schedule
from fluss_tiering.server.tiering.states import TieredTable


class TieredTables:
    """Changed in the thread of control alone.

    Attributes:
        pending: by how long they have been Pending: first in, first out (S7).
        due: by when they become Pending by themselves (S2, S18).
        withdrawn: statuses of tables whose tiering was switched off; their epochs go on when it is switched on (S3).
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
        """The table of that id."""
        return self._tables.get(table_id)

    def get_by_path(self, path: TablePath) -> TieredTable | None:
        """The table of that path."""
        table_id = self._ids.get(path)
        return None if table_id is None else self._tables[table_id]

    def all(self) -> list[TieredTable]:
        """All tables; safe to call from any thread, since the copy is one step of the interpreter."""
        return list(self._tables.values())

    def running(self) -> Iterator[TieredTable]:
        """The tables whose round runs."""
        return (self._tables[table_id] for table_id in list(self._running))

    @property
    def running_count(self) -> int:
        """How many rounds run."""
        return len(self._running)

    def statuses(self) -> list[TieringStatus]:
        """The statuses of all tables, by path."""
        if self._by_path is None:
            # Strings compare many times faster than paths do.
            paths = {table_id: (path.database, path.table) for path, table_id in self._ids.items()}
            self._by_path = sorted(paths, key=paths.__getitem__)
        return [self._tables[table_id].status for table_id in self._by_path]

    def put(self, table: TieredTable) -> None:
        """Adds or replaces a table."""
        status = table.status
        table_id = status.table_id
        before = self._tables.get(table_id)
        self._tables[table_id] = table
        if before is None:
            self._ids[status.path] = table_id
            self._by_path = None
            self.withdrawn.pop(table_id, None)
        if before is not None and before.status is status and before.freshness_ms == table.freshness_ms:
            return  # a heartbeat alone
        self.pending.put(table_id, status.state_since if status.state is TieringState.PENDING else None)
        self.due.put(table_id, table.due_time)
        if table.round is None:
            self._running.pop(table_id, None)
        else:
            self._running[table_id] = None

    def remove(self, table_id: int) -> None:
        """Takes a table out."""
        self.withdrawn.pop(table_id, None)
        table = self._tables.pop(table_id, None)
        if table is None:
            return
        del self._ids[table.status.path]
        self._by_path = None
        self._running.pop(table_id, None)
        self.pending.put(table_id, None)
        self.due.put(table_id, None)
