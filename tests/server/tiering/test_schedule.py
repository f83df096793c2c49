"""Tables in the order of a time, compared with sorting them; and what many tables cost: S2, S7."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manager_support import Managers

from engine_support import HOUR, VirtualClock, table_info
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.server.core.tiering.tables import Schedule

MANY = 120


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


def test_many_due_tables_become_pending_in_turns(managers: Managers, clock: VirtualClock) -> None:  # S2, S7
    for table_id in range(1, MANY + 1):
        managers.tables[table_id] = table_info(table_id, created_time=clock.now_ms() + MANY - table_id, freshness="1h")
    managers.restart()
    clock.advance(2 * HOUR)
    counts = []
    for _ in range(4):
        managers.tiering.move_due_tables()
        counts.append(sum(status.state is TieringState.PENDING for status in managers.tiering.statuses()))
    assert counts == [50, 100, MANY, MANY], "so that no turn holds up heartbeats"
    pending = {status.table_id for status in managers.tiering.statuses()}
    assert pending == set(managers.tables)


def test_a_failed_write_loses_no_due_table(managers: Managers, clock: VirtualClock) -> None:  # S24
    table = managers.add_table(1, freshness="1h")
    clock.advance(HOUR)
    with managers.failing_disk(), pytest.raises(FlussTieringError):
        managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.SCHEDULED
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.PENDING
