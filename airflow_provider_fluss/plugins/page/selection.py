"""What a user asks the list of tables for: a search, a status, an order and a page of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from fluss_tiering.model.tiering import TieringState, TieringStatus

FAILING: Final = "Failing"
"""What the page calls tables whose last round failed, whatever state they are in meanwhile."""
PARKED: Final = "Parked"
"""What the page calls a Failed table that is not tried again by itself."""
INTERRUPTED: Final = "Interrupted"
"""What the page calls a Failed table, or a round, that something other than the table ended."""
ALWAYS_SHOWN: Final = (
    FAILING,
    PARKED,
    TieringState.PENDING.value,
    TieringState.TIERING.value,
    TieringState.SCHEDULED.value,
)
"""What a user can filter by, also if no table is so. What needs attention comes first."""
FILTERS: Final = (
    FAILING,
    TieringState.FAILED.value,
    *ALWAYS_SHOWN[1:],
    INTERRUPTED,
    TieringState.NEW.value,
    TieringState.INITIALIZED.value,
    TieringState.TIERED.value,
)
"""All that a user can filter by."""
PAGE_ROWS: Final = 100


def shown_state(status: TieringStatus) -> str:
    """Return the state of a table as the page calls it."""
    if status.parked:
        return PARKED
    return INTERRUPTED if status.interrupted else status.state.value


def since(status: TieringStatus) -> int:
    """Return when the table began to fail, or when it came into its state if it does not fail."""
    return status.state_since if status.failing_since is None else status.failing_since


_DEFAULT_ORDER: Final = ""
_KEYS: Final[Mapping[str, Callable[[TieringStatus], Any]]] = {
    # What needs somebody comes first: what waits for a person, and then what is tried again.
    _DEFAULT_ORDER: lambda each: (not each.parked, not each.failing, each.path.database, each.path.table),
    "table": lambda each: (each.path.database, each.path.table),
    "status": shown_state,
    "since": since,
    "tiered": lambda each: each.last_tiered_time,
    "waiting": lambda each: each.records_waiting,
    # The table that lags most has the oldest record.
    "lag": lambda each: None if each.waiting_since is None else -each.waiting_since,
    "next": lambda each: each.next_round_time,
    "failures": lambda each: each.consecutive_failures,
    "epoch": lambda each: each.tiering_epoch,
    "error": lambda each: each.last_error_time,
}


def is_late(status: TieringStatus, now: int) -> bool:
    """Return whether the lake is further behind than the table's freshness allows. `now` is in ms since the epoch."""
    lag = status.lag_ms(now)
    return lag is not None and status.freshness_ms is not None and lag > status.freshness_ms


@dataclass(frozen=True, slots=True)
class Selection:
    """What a user asks for. A status or an order that does not exist counts as not given.

    Attributes:
        conn: The id of the connection.
        search: A part of the `database.table` of the tables; in any case of letters.
        status: One of `FILTERS`; empty for all.
        tables: The tables, as `database.table`; none for all.
        order: The column by which the tables are sorted; empty for what needs attention first.
        descending: Whether the largest value comes first. Tables without a value come last in both cases.
        page: The number of the page, from 1.
    """

    conn: str
    search: str = ""
    status: str = ""
    tables: tuple[str, ...] = ()
    order: str = _DEFAULT_ORDER
    descending: bool = False
    page: int = 1

    def href(self, **changes: Any) -> str:
        """Return the relative address of the list with these changes, at the first page unless one is given."""
        changed = replace(self, **{"page": 1, **changes})
        values: list[tuple[str, str]] = [("conn", changed.conn)]
        values += [("q", changed.search)] * bool(changed.search)
        values += [("status", changed.status)] * bool(changed.status)
        values += [("tables", table) for table in changed.tables]
        values += [("order", changed.order)] * (changed.order != _DEFAULT_ORDER)
        values += [("descending", "1")] * changed.descending
        values += [("page", str(changed.page))] * (changed.page > 1)
        return f"./?{urlencode(values)}"

    def sorted_by(self, order: str) -> str:
        """Return the address of the list in another order; in the opposite order if it has this one."""
        return self.href(order=order, descending=not self.descending if order == self.order else False)

    def aria_sort(self, order: str) -> str:
        """Return how the column of this name is sorted, as `aria-sort` takes it."""
        if order != self.order:
            return "none"
        return "descending" if self.descending else "ascending"


@dataclass(frozen=True, slots=True)
class Selected:
    """One page of the tables that a user asked for.

    Attributes:
        rows: The tables of the page.
        selection: What was asked for, with the number of a page that exists.
        first: The number of the first row, from 1; 0 if there is none.
        found: The number of tables that fit, on all pages.
        pages: The number of pages, at least 1.
        counts: The number of tables for each of `FILTERS`, those that the search leaves out as well.
        total: The number of all tables.
    """

    rows: Sequence[TieringStatus]
    selection: Selection
    first: int
    found: int
    pages: int
    counts: Mapping[str, int]
    total: int


def select(statuses: Sequence[TieringStatus], selection: Selection) -> Selected:
    """Return the page that the user asked for."""
    selection = replace(
        selection,
        order=selection.order if selection.order in _KEYS else _DEFAULT_ORDER,
        status=selection.status if selection.status in FILTERS else "",
    )
    found = sort(matching(statuses, selection), selection.order, selection.descending)
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(max(selection.page, 1), pages)
    first = (page - 1) * PAGE_ROWS
    return Selected(
        rows=found[first : first + PAGE_ROWS],
        selection=replace(selection, page=page),
        first=first + 1 if found else 0,
        found=len(found),
        pages=pages,
        counts=Counter(map(shown_state, statuses)) + Counter({FAILING: sum(each.failing for each in statuses)}),
        total=len(statuses),
    )


def matching(statuses: Iterable[TieringStatus], selection: Selection) -> list[TieringStatus]:
    """Return the tables that the search, the status and the names leave."""
    search = selection.search.strip().casefold()
    names = frozenset(selection.tables)
    return [
        each
        for each in statuses
        if _fits(each, selection.status)
        and (not names or str(each.path) in names)
        and (not search or search in str(each.path).casefold())
    ]


def _fits(status: TieringStatus, wanted: str) -> bool:
    return not wanted or (status.failing if wanted == FAILING else shown_state(status) == wanted)


def sort(statuses: Iterable[TieringStatus], order: str, descending: bool) -> list[TieringStatus]:
    """Return the tables in this order; tables without a value come last, and equal ones are sorted by name."""
    by_name = sorted(statuses, key=_KEYS["table"])
    key = _KEYS[order]
    with_value = [each for each in by_name if key(each) is not None]
    with_value.sort(key=key, reverse=descending)
    return with_value + [each for each in by_name if key(each) is None]
