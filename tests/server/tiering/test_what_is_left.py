"""What ends leave behind: nothing of a dropped table, nothing of an error after a success, and no count twice."""

from __future__ import annotations

import random

import pytest
from manager_support import BACKOFF_BASE, BACKOFF_CAP, HEARTBEAT_TIMEOUT, Managers

from engine_support import MINUTE, VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import HeartbeatEntry, TieringState, TieringStats
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat
from fluss_tiering.server.core.tiering.states import FailureBackoff
from fluss_tiering.server.core.tiering.totals import TableTotals

SWITCHED_OFF = {"table.datalake.enabled": "false"}


class Chance(random.Random):
    """Draws one number for ever."""

    def __init__(self, drawn: float) -> None:
        super().__init__()
        self._drawn = drawn

    def random(self) -> float:
        return self._drawn


@pytest.mark.parametrize("state", [TieringState.PENDING, TieringState.SCHEDULED, TieringState.TIERING])
def test_a_dropped_table_is_in_no_index(managers: Managers, clock: VirtualClock, state: TieringState) -> None:  # S20
    dropped = managers.add_table(1, freshness="0s" if state is TieringState.PENDING else "1min")
    kept = managers.add_table(2, freshness="1min")
    if state is TieringState.TIERING:
        managers.claim(dropped)
    assert managers.state(dropped) is state
    managers.drop_table(1)
    tables = managers.tiering.tables
    assert (len(tables), len(tables.pending), len(tables.due), list(tables.running())) == (1, 0, 1, [])
    clock.advance(HEARTBEAT_TIMEOUT)
    managers.tiering.end_overdue_rounds()
    managers.tiering.move_due_tables()
    claim = managers.request()
    assert claim is not None
    assert claim.path == kept.path


def test_a_dropped_table_whose_tiering_was_switched_off_is_in_no_index_either(managers: Managers) -> None:  # S20
    table = managers.add_table(1)
    managers.alter_table(table, SWITCHED_OFF)
    assert list(managers.tiering.tables.withdrawn) == [1]
    managers.drop_table(1)
    assert managers.tiering.tables.withdrawn == {}


def test_totals_are_of_tables_that_are_tiered(managers: Managers) -> None:  # S20
    table = managers.add_table(1, freshness="0s")
    managers.finish(managers.claim(table), TieringStats(rows=5))
    managers.fail(managers.claim(table))
    assert (managers.tiering.totals.of(1).rows, managers.tiering.totals.of(1).failures) == (5, 1)
    managers.alter_table(table, SWITCHED_OFF)
    assert managers.tiering.totals.of(1) == TableTotals()


def test_a_drop_that_was_recorded_late_is_recorded_once(managers: Managers, clock: VirtualClock) -> None:  # S25
    managers.claim(managers.add_table(1), "X")
    with managers.failing_disk(), pytest.raises(FlussTieringError):
        managers.tiering.remove(1)
    managers.tiering.withhold(1)
    managers.tiering.remove(1)
    recorded = managers.lease_outcome("X", None)
    assert recorded.rounds[0].end_time == clock.now_ms()
    clock.advance(MINUTE)
    managers.tiering.remove(1)
    assert managers.lease_outcome("X", None) == recorded


def test_time_that_a_server_stood_still_is_given_to_running_rounds(  # S4, D3
    managers: Managers, clock: VirtualClock
) -> None:
    idle, running = managers.add_table(1), managers.add_table(2)
    claim = managers.claim(running)
    managers.tiering.allow_for_standstill(MINUTE)
    clock.advance(HEARTBEAT_TIMEOUT + MINUTE - 1)
    managers.tiering.end_overdue_rounds()
    assert managers.state(running) is TieringState.TIERING
    clock.advance(1)
    managers.tiering.end_overdue_rounds()
    assert managers.state(running) is TieringState.FAILED
    assert managers.state(idle) is TieringState.SCHEDULED
    assert managers.beat(claim).tiering_errors


def test_a_success_leaves_nothing_of_the_failures_before_it(managers: Managers, clock: VirtualClock) -> None:  # S12
    table = managers.add_table(1, freshness="1h")
    managers.fail(managers.claim(table), "disk full")
    failed = managers.status(table)
    assert (failed.last_error_time, failed.next_retry_time is None) == (clock.now_ms(), False)
    clock.advance(MINUTE)
    managers.finish(managers.claim(table))
    status = managers.status(table)
    left = (status.last_error, status.last_error_time, status.next_retry_time, status.consecutive_failures)
    assert left == (None, None, None, 0)
    assert (status.last_tiered_time, status.state_since) == (clock.now_ms(), clock.now_ms())


def test_reports_on_a_table_that_is_not_known_name_it(managers: Managers) -> None:  # S5
    entry = (HeartbeatEntry(77, 1),)
    answer = managers.tiering.heartbeat(Heartbeat(tiering=entry, finished=entry, failed=entry))
    assert answer.coordinator_epoch == managers.tiering.heartbeat(Heartbeat()).coordinator_epoch > 0
    for errors in (answer.tiering_errors, answer.finished_errors, answer.failed_errors):
        assert errors[77].code is ErrorCode.TABLE_NOT_EXIST
        assert errors[77].message.startswith("table 77 does not exist")


@pytest.mark.parametrize(("drawn", "left"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_up_to_half_of_a_wait_is_left_to_chance(drawn: float, left: float) -> None:  # S18
    backoff = FailureBackoff(BACKOFF_BASE, BACKOFF_CAP, Chance(drawn))
    assert [backoff.delay_ms(failures) for failures in (1, 2, 3)] == [
        BACKOFF_BASE * left,
        2 * BACKOFF_BASE * left,
        4 * BACKOFF_BASE * left,
    ]
    assert backoff.delay_ms(1000) == BACKOFF_CAP * left
