"""Searching, filtering, sorting and paging, compared with a plain model, without a server."""

from __future__ import annotations

import random
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_provider_fluss.plugins.page.selection import (
    FAILING,
    PAGE_ROWS,
    PARKED,
    Selection,
    is_late,
    select,
    shown_state,
)
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus

NOW = 1_800_000_000_000


def statuses(number: int, seed: int = 1) -> list[TieringStatus]:
    rand = random.Random(seed)

    def maybe(value: int) -> int | None:
        return rand.choice([None, value])

    return [
        TieringStatus(
            table_id=number,
            path=TablePath(rand.choice(["shop", "web", "Finance"]), f"t{number}"),
            state=rand.choice(list(TieringState)),
            state_since=NOW - rand.randrange(1000),
            tiering_epoch=rand.randrange(5),
            last_tiered_time=maybe(NOW - rand.randrange(1000)),
            last_error=rand.choice([None, "error"]),
            last_error_time=maybe(NOW - rand.randrange(1000)),
            consecutive_failures=rand.randrange(3),
            next_retry_time=maybe(NOW + rand.randrange(1000)),
            records_waiting=maybe(rand.randrange(9)),
            waiting_since=maybe(NOW - rand.randrange(1000)),
            next_round_time=maybe(NOW + rand.randrange(1000)),
            freshness_ms=500,
            failing_since=maybe(NOW - rand.randrange(1000)),
        )
        for number in range(number)
    ]


# What the user sees in a column, as a number or a text that has the order of the column.
SEEN = {
    "table": lambda each: (each.path.database, each.path.table),
    "status": shown_state,
    "since": lambda each: each.state_since if each.failing_since is None else each.failing_since,
    "waiting": lambda each: each.records_waiting,
    "lag": lambda each: each.lag_ms(NOW) if each.waiting_since is not None else None,
    "next": lambda each: each.next_round_time,
    "tiered": lambda each: each.last_tiered_time,
    "epoch": lambda each: each.tiering_epoch,
    "failures": lambda each: each.consecutive_failures,
    "error": lambda each: each.last_error_time,
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", SEEN)
def test_all_pages_together_are_the_sorted_tables(order, descending):
    tables = statuses(1050)
    shown = []
    for page in range(1, 12):
        selected = select(tables, Selection("c", order=order, descending=descending, page=page))
        assert (selected.found, selected.total, selected.pages) == (1050, 1050, 11)
        assert selected.first == len(shown) + 1
        assert len(selected.rows) == (PAGE_ROWS if page < 11 else 50)
        shown += selected.rows
    assert sorted(each.table_id for each in shown) == list(range(1050))
    values = [SEEN[order](each) for each in shown]
    known = [value for value in values if value is not None]
    assert values[len(known) :] == [None] * (len(values) - len(known))
    assert known == sorted(known, reverse=descending)


def test_search_status_and_names_leave_the_tables_that_have_all_of_them():
    tables = statuses(500)
    wanted = tuple(str(each.path) for each in tables[::2])
    selected = select(tables, Selection("c", search=" FINANCE.t ", status=PARKED, tables=wanted))
    expected = {each.table_id for each in tables[::2] if each.path.database == "Finance" and each.parked}
    assert {each.table_id for each in selected.rows} == expected
    assert expected
    assert selected.counts[PARKED] == sum(each.parked for each in tables)
    failed = [each for each in tables if each.state == "Failed" and not each.parked]
    # E35: what somebody cancelled has no failures, and is not called Failed.
    assert selected.counts["Failed"] == sum(each.consecutive_failures > 0 for each in failed) > 0
    assert selected.counts["Interrupted"] == sum(each.consecutive_failures == 0 for each in failed) > 0
    assert sum(selected.counts.values()) - selected.counts[FAILING] == selected.total == 500


def test_the_tables_that_fail_come_first_and_can_be_shown_alone():  # E30
    tables = statuses(300)
    failing = [each for each in tables if each.consecutive_failures]
    assert {each.state for each in failing} == set(TieringState), "whatever state they are in"
    selected = select(tables, Selection("c"))
    assert selected.counts[FAILING] == len(failing)
    first = [each.consecutive_failures > 0 for each in selected.rows if not each.parked]
    assert first == sorted(first, reverse=True)
    parked = [each.parked for each in selected.rows]
    assert parked == sorted(parked, reverse=True)
    alone = select(tables, Selection("c", status=FAILING, order="table")).rows
    assert list(alone) == sorted(failing, key=SEEN["table"])[:PAGE_ROWS]


@pytest.mark.parametrize(("page", "shown"), [(-5, 1), (0, 1), (3, 3), (1_000_000, 3)])
def test_a_page_that_does_not_exist_is_the_nearest_one(page, shown):
    selected = select(statuses(201), Selection("c", page=page))
    assert (selected.selection.page, selected.pages) == (shown, 3)
    assert select([], Selection("c", page=page)).rows == []


def test_an_unknown_order_is_the_first_one():
    by_name = select(statuses(99), Selection("c")).rows
    assert select(statuses(99), Selection("c", order="nothing")).rows == by_name


def test_an_address_keeps_what_was_asked_for():
    selection = Selection("c d", search="ä&b=", status="Failed", tables=("a.b", "c.d"), order="lag", page=3)
    values = parse_qs(urlsplit(selection.href(page=4)).query)
    assert values == {
        "conn": ["c d"],
        "q": ["ä&b="],
        "status": ["Failed"],
        "tables": ["a.b", "c.d"],
        "order": ["lag"],
        "page": ["4"],
    }
    assert "page" not in selection.href(status="")
    assert "descending=1" in selection.sorted_by("lag")
    assert "descending" not in selection.sorted_by("epoch")
    assert (selection.aria_sort("lag"), selection.aria_sort("epoch")) == ("ascending", "none")


def test_a_table_is_late_once_its_oldest_row_waits_longer_than_its_freshness():
    (status,) = statuses(1)

    def late(**values: int | None) -> bool:
        named = {"waiting_since": NOW - 501, "freshness_ms": 500, **values}
        return is_late(TieringStatus(1, status.path, TieringState.SCHEDULED, NOW, 1, **named), NOW)

    assert late()
    assert not late(waiting_since=NOW - 500)
    assert not late(waiting_since=None)
    assert not late(freshness_ms=None)
