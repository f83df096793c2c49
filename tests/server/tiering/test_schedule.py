"""Tables in the order of a time, times that a server stored whose clock was ahead, and rounds in pages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manager_support import Managers

from engine_support import HOUR, MINUTE, VirtualClock
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.server.core.tiering.states import without_future
from fluss_tiering.server.core.tiering.tables import Schedule


@given(st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(0, 50)), max_size=200), st.integers(0, 50))
def test_it_orders_as_sorting_does(changes: list[tuple[int, int | None]], until: int) -> None:
    schedule, times = Schedule(), dict[int, int]()
    for table_id, time in changes:
        schedule.put(table_id, time)
        if time is None:
            times.pop(table_id, None)
        else:
            times[table_id] = time
    ordered = sorted(times, key=lambda table_id: (times[table_id], table_id))
    assert len(schedule) == len(times)
    assert schedule.first() == (ordered[0] if ordered else None)
    assert schedule.until(until) == [table_id for table_id in ordered if times[table_id] <= until]
    assert schedule.until(until) == [table_id for table_id in ordered if times[table_id] <= until], "nothing was lost"


def test_it_stays_small_while_times_change() -> None:
    schedule = Schedule()
    for time in range(10_000):
        schedule.put(time % 7, time)
    assert len(schedule._heap) < 100
    assert schedule.first() == (10_000 - 7) % 7


def test_a_failed_write_loses_no_due_table(managers: Managers, clock: VirtualClock) -> None:  # S24
    table = managers.add_table(1, freshness="1h")
    clock.advance(HOUR)
    with managers.failing_disk(), pytest.raises(FlussTieringError):
        managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.SCHEDULED
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.PENDING


NOW = 1_700_000_000_000
LONGEST = 10 * MINUTE
STATUS = TieringStatus(1, TablePath("db", "t"), TieringState.FAILED, state_since=NOW - 5, tiering_epoch=3)


@pytest.mark.parametrize("ahead", [0, 1, HOUR])
def test_a_wait_is_as_long_as_it_was_wherever_the_clock_stood(ahead: int) -> None:  # S18, D3
    stored = replace(
        STATUS,
        state_since=NOW + ahead,
        last_tiered_time=NOW + ahead,
        last_error="disk full",
        last_error_time=NOW + ahead,
        failing_since=NOW + ahead,
        next_retry_time=NOW + ahead + 5000,
    )
    expected = replace(
        STATUS,
        state_since=NOW,
        last_tiered_time=NOW,
        last_error="disk full",
        last_error_time=NOW,
        failing_since=NOW,
        next_retry_time=NOW + 5000,
    )
    assert without_future(stored, LONGEST, NOW) == expected


def test_times_of_the_past_stay() -> None:  # S18, D3
    stored = replace(
        STATUS, last_tiered_time=NOW - HOUR, last_error_time=NOW - MINUTE, next_retry_time=NOW + MINUTE, last_error="e"
    )
    assert without_future(stored, LONGEST, NOW) == stored
    assert without_future(STATUS, LONGEST, NOW) == STATUS
    without_failure = replace(STATUS, next_retry_time=NOW + 5000)
    assert without_future(without_failure, LONGEST, NOW) == without_failure


def test_no_wait_is_longer_than_the_longest() -> None:  # S18, D3
    stored = replace(STATUS, last_error_time=NOW - 1, next_retry_time=NOW + HOUR)
    assert without_future(stored, LONGEST, NOW).next_retry_time == NOW + LONGEST


def test_rounds_come_in_pages_of_tables(managers: Managers) -> None:  # S23
    for table_id in (1, 2, 3):
        table = managers.add_table(table_id, freshness="0s")
        for _ in range(2):
            managers.finish(managers.claim(table, "X"))
    seen, after, pages = [], None, 0
    while pages == 0 or after is not None:
        page = managers.tiering.rounds_page(None, "X", 1, after, 2)
        assert len({each.table_id for each in page.rounds}) <= 2
        seen += [(each.table_id, each.tiering_epoch) for each in page.rounds]
        after, pages = page.next_after, pages + 1
    assert seen == [(1, 2), (2, 2), (3, 2)]
    assert pages == 2
