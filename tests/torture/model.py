"""What was acknowledged: the rows that a table holds, and those that its lake table must hold after a round."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from fluss_tiering.model.table import WriteKind
from torture.arrow_values import comparable, lake_value
from torture.plan import PlannedTable
from torture.values import Value

Row = tuple[Value, ...]


class TableModel:
    """The rows of one table, in plain Python.

    The lake keeps what it has of partitions that were dropped. A delete of a key that the table does not have changes
    nothing there, so that it does not reach the lake.
    """

    def __init__(self, planned: PlannedTable) -> None:
        self._types = [column.data_type for column in planned.typed]
        names = [name for name, _ in planned.columns]
        self._keys = [names.index(name) for name in planned.primary_key]
        self._partition = [names.index(name) for name in planned.partition_keys]
        self._stored: dict[Hashable, Row] = {}
        self._appended: list[Row] = []
        self._pending: list[tuple[Hashable, Row | None, Row]] = []
        self._lake: dict[Hashable, Row] = {}
        self._number = 0

    def written(self, kind: WriteKind, rows: Iterable[Sequence[Value]]) -> None:
        """Note rows whose write was acknowledged."""
        for row in rows:
            values = self._of_lake(row)
            if kind is WriteKind.APPEND:
                self._number += 1
                self._pending.append((self._number, values, values))
                continue
            key = self._key(values)
            if kind is WriteKind.UPSERT:
                self._stored[key] = values
                self._pending.append((key, values, values))
            elif key in self._stored:
                self._pending.append((key, None, self._stored.pop(key)))

    def lost(self, count: int) -> None:
        """Note that the oldest rows of a log table were deleted before they were tiered."""
        del self._pending[:count]

    def dropped(self, partition: Sequence[str]) -> None:
        """Note that a partition was dropped, with what was not tiered of it."""

        def kept(row: Row) -> bool:
            return [row[place] for place in self._partition] != list(partition)

        self._stored = {key: row for key, row in self._stored.items() if kept(row)}
        self._pending = [change for change in self._pending if kept(change[2])]

    def tiered(self) -> None:
        """Note that everything that was written is in the lake."""
        for key, row, _ in self._pending:
            if row is None:
                self._lake.pop(key, None)
            else:
                self._lake[key] = row
        self._pending.clear()

    @property
    def pending(self) -> int:
        """How many changes are not in the lake yet."""
        return len(self._pending)

    def lake_rows(self) -> list[Row]:
        """Return the rows that the lake table must hold."""
        return list(self._lake.values())

    def stored_rows(self) -> list[Row]:
        """Return the rows that the Fluss table must hold, if it has a primary key."""
        return list(self._stored.values())

    def _key(self, row: Row) -> Hashable:
        return tuple(comparable(row[place]) for place in self._keys)

    def _of_lake(self, row: Sequence[Value]) -> Row:
        return tuple(lake_value(kind, value) for kind, value in zip(self._types, row, strict=True))
