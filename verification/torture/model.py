"""What was acknowledged: the rows that a table holds, and those that its lake table must hold after a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fluss_tiering.model.table import WriteKind
from torture.arrow_values import comparable, lake_value
from torture.plan import PlannedTable
from torture.values import Value

Row = tuple[Value, ...]


@dataclass(frozen=True)
class _Change:
    """A change that is not in the lake yet.

    Attributes:
        key: The key of the row; a number for a log table.
        row: The row; None if it was deleted.
        place: The row, or the deleted one: where the change is.
        in_doubt: Whether the lake may do without it.
    """

    key: Hashable
    row: Row | None
    place: Row
    in_doubt: bool = False


class TableModel:
    """The rows of one table, in plain Python.

    The lake keeps what it has of partitions that were dropped. A delete of a key that the table does not have changes
    nothing there, so that it does not reach the lake. Rows are in doubt if their write was not acknowledged, or if a
    user may have deleted them from the lake before or after a round wrote them.
    """

    def __init__(self, planned: PlannedTable) -> None:
        self._use(planned)
        self._stored: dict[Hashable, Row] = {}
        self._pending: list[_Change] = []
        self._lake: dict[Hashable, Row] = {}
        self._doubtful: dict[Hashable, Row] = {}
        self._number = 0

    def altered(self, planned: PlannedTable, places: Sequence[int | None]) -> None:
        """Note that the columns of the table were changed, and that the lake follows.

        Args:
            planned: The table as it is now.
            places: The place of each column before; None for a new one, which is null in all rows.
        """
        self._use(planned)

        def moved(row: Row) -> Row:
            return tuple(None if place is None else row[place] for place in places)

        self._stored, self._lake, self._doubtful = (
            {key: moved(row) for key, row in rows.items()} for rows in (self._stored, self._lake, self._doubtful)
        )
        self._pending = [
            replace(each, row=None if each.row is None else moved(each.row), place=moved(each.place))
            for each in self._pending
        ]

    def _use(self, planned: PlannedTable) -> None:
        self._types = [column.data_type for column in planned.typed]
        names = [name for name, _ in planned.columns]
        self._keys = [names.index(name) for name in planned.primary_key]
        self._partition = [names.index(name) for name in planned.partition_keys]

    def written(self, kind: WriteKind, rows: Iterable[Sequence[Value]]) -> None:
        """Note rows whose write was acknowledged."""
        for row in rows:
            values = self._of_lake(row)
            if kind is WriteKind.APPEND:
                self._append(values)
                continue
            key = self._key(values)
            if kind is WriteKind.UPSERT:
                self._stored[key] = values
                self._pending.append(_Change(key, values, values))
            elif key in self._stored:
                self._pending.append(_Change(key, None, self._stored.pop(key)))

    def appended_in_doubt(self, rows: Iterable[Sequence[Value]]) -> None:
        """Note rows of a log table whose write was not acknowledged, so that each may be there or not."""
        for row in rows:
            self._append(self._of_lake(row), in_doubt=True)

    def changed_in_doubt(
        self, kind: WriteKind, rows: Iterable[Sequence[Value]], found: Iterable[Row]
    ) -> Mapping[Hashable, Row | None]:
        """Note changes of a primary-key table that were not acknowledged, by the rows that it holds now.

        Args:
            kind: Whether they are upserts or deletes.
            rows: The rows, in their order.
            found: All rows of the table, as a scan reads them.

        Returns:
            By key, rows that the table must not hold: neither the one before nor one of the changes. None stands for a
            row that is missing.
        """
        now = {self._key(row): row for row in found}
        candidates: dict[Hashable, list[Row | None]] = {}
        for row in rows:
            values = self._of_lake(row)
            key = self._key(values)
            before = candidates.setdefault(key, [self._stored.get(key)])
            before.append(values if kind is WriteKind.UPSERT else None)
        wrong: dict[Hashable, Row | None] = {}
        for key, possible in candidates.items():
            before, after = possible[0], now.get(key)
            if comparable(after) not in [comparable(each) for each in possible]:
                wrong[key] = after
            elif comparable(after) != comparable(before):
                self._note(key, after, before)
        return wrong

    def _note(self, key: Hashable, after: Row | None, before: Row | None) -> None:
        place = after if after is not None else before
        assert place is not None
        self._pending.append(_Change(key, after, place))
        if after is None:
            self._stored.pop(key)
        else:
            self._stored[key] = after

    def _append(self, row: Row, *, in_doubt: bool = False) -> None:
        self._number += 1
        self._pending.append(_Change(self._number, row, row, in_doubt))

    def lost(self, count: int) -> None:
        """Note that the oldest rows of a log table were deleted before they were tiered."""
        del self._pending[:count]

    def dropped(self, partition: Sequence[str]) -> None:
        """Note that a partition was dropped, with what was not tiered of it."""

        def kept(row: Row) -> bool:
            return [row[place] for place in self._partition] != list(partition)

        self._stored = {key: row for key, row in self._stored.items() if kept(row)}
        self._pending = [change for change in self._pending if kept(change.place)]

    def tiered(self) -> None:
        """Note that everything that was written is in the lake."""
        for change in self._pending:
            self._lake.pop(change.key, None)
            self._doubtful.pop(change.key, None)
            if change.row is not None:
                (self._doubtful if change.in_doubt else self._lake)[change.key] = change.row
        self._pending.clear()

    def deleted_in_lake(self, holds: Callable[[Row], bool], *, beside_round: bool = False) -> None:
        """Note that a user has deleted rows from the lake table.

        Args:
            holds: Whether a row was to be deleted.
            beside_round: Whether a round was writing at that time, so that its rows may be deleted or not.
        """
        self._lake = {key: row for key, row in self._lake.items() if not holds(row)}
        if beside_round:
            self._pending = [
                replace(change, in_doubt=True) if change.row is not None and holds(change.row) else change
                for change in self._pending
            ]

    @property
    def has_doubts(self) -> bool:
        """Whether the lake may hold rows, or not, which `settle` finds out."""
        return bool(self._doubtful)

    def settle(self, found: Iterable[Row]) -> int:
        """Note which of the rows that are in doubt are there, and return how many.

        Args:
            found: All rows of the lake table, as one of the judges reads them.
        """
        surplus = Counter(map(comparable, found)) - Counter(map(comparable, self._lake.values()))
        there = 0
        for key, row in self._doubtful.items():
            if surplus[comparable(row)] > 0:
                surplus[comparable(row)] -= 1
                self._lake[key] = row
                there += 1
        self._doubtful.clear()
        return there

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
