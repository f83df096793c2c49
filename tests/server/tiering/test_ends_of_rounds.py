"""How rounds end that their drivers do not end, in which order tables are handed out, and what ends leave behind."""

from __future__ import annotations

import random

import pytest
from manager_support import BACKOFF_BASE, BACKOFF_CAP, HEARTBEAT_TIMEOUT, Managers

from cases import cases
from engine_support import MINUTE, VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState, TieringStats, TieringStatus
from fluss_tiering.server.core.tiering.changes import TieringChanges
from fluss_tiering.server.core.tiering.claims import claim_table, move_due
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat
from fluss_tiering.server.core.tiering.manager import LakeTieringManager
from fluss_tiering.server.core.tiering.policy import TieringPolicy
from fluss_tiering.server.core.tiering.states import (
    MAX_CONSECUTIVE_FAILURES,
    FailureBackoff,
    RoundOwner,
    TieredTable,
    begin,
    claimable,
    pend,
)
from fluss_tiering.server.core.tiering.totals import TableTotals

WEEK = 7 * 24 * 60 * MINUTE
BACKOFF = FailureBackoff(BACKOFF_BASE, BACKOFF_CAP, random.Random(7))


# Time-outs


@pytest.mark.parametrize("driver", ["driver-1", ""])
def test_a_round_that_timed_out_is_recorded_with_its_end_and_its_driver(  # S4, S23, S25
    managers: Managers, clock: VirtualClock, driver: str
) -> None:
    managers.add_table(1, freshness="0s")
    claim = managers.request(driver)
    assert claim is not None
    clock.advance(HEARTBEAT_TIMEOUT)
    managers.tiering.end_overdue_rounds()
    for _ in range(2):
        (ended,) = managers.rounds(None, None, 10)
        assert (ended.state, ended.end_time) == (TieringState.FAILED, clock.now_ms())
        assert ended.error is not None
        assert ended.error.endswith(f" from driver {driver or 'unknown'}")
        managers.restart()
    assert managers.tiering.totals.of(1).failures == 0, "counted since the server started"


def test_a_silent_round_fails_also_if_others_are_not_silent(managers: Managers, clock: VirtualClock) -> None:  # S4
    tables = [managers.add_table(table_id) for table_id in range(1, 5)]
    claims = [managers.claim(table) for table in tables]
    clock.advance(HEARTBEAT_TIMEOUT)
    for heard in (claims[0], claims[2]):
        managers.beat(heard)
    managers.tiering.end_overdue_rounds()
    states = [managers.state(table) for table in tables]
    assert states == [TieringState.TIERING, TieringState.FAILED, TieringState.TIERING, TieringState.FAILED]


# Tables that go


# S25
def test_a_table_that_was_dropped_while_no_server_ran_ends_its_round(managers: Managers, clock: VirtualClock) -> None:
    managers.claim(managers.add_table(1), "X")
    clock.advance(MINUTE)
    del managers.tables[1]
    managers.restart()
    (ended,) = managers.lease_outcome("X", None).rounds
    assert (ended.state, ended.error, ended.end_time) == (
        TieringState.FAILED,
        "the table was dropped",
        clock.now_ms(),
    )


def test_a_table_that_could_not_be_used_is_registered_once(managers: Managers) -> None:  # S19, D2
    table = managers.add_table(1)
    managers.make_unusable(1)
    managers.make_usable(table)
    for _ in range(MAX_CONSECUTIVE_FAILURES):
        managers.fail(managers.claim(table))
    managers.tiering.register(table)
    assert managers.status(table).parked, "to register again changes nothing"


# S2, D2
def test_a_table_that_can_be_used_again_is_due_by_its_own_creation(managers: Managers, clock: VirtualClock) -> None:
    table = managers.add_table(1, freshness="1h")
    clock.advance(30 * MINUTE)
    managers.fail(managers.claim(table))
    managers.make_unusable(1)
    managers.make_usable(table)
    (tiered,) = managers.tiering.tables.all()
    assert tiered.created_time == table.created_time


def test_on_a_cluster_no_table_becomes_due_by_its_freshness(managers: Managers, clock: VirtualClock) -> None:  # S2, D2
    usable, unusable = managers.add_table(1), managers.add_table(2)
    for table in (usable, unusable):
        managers.finish(managers.claim(table))
    policy = TieringPolicy(HEARTBEAT_TIMEOUT, BACKOFF, kept_rounds=5, due_by_freshness=False)
    tiering = LakeTieringManager(clock, managers.store, managers.attempts, policy, managers.backlogs)
    tiering.load([usable], {unusable.path})
    clock.advance(WEEK)
    tiering.move_due_tables()
    assert {status.state for status in tiering.statuses()} == {TieringState.SCHEDULED}
    assert tiering.make_due(2) is TieringState.PENDING


def test_tables_are_sorted_into_tiered_and_untiered(managers: Managers) -> None:
    table, unknown = managers.add_table(1), TablePath("db", "unknown")
    assert managers.tiering.untiered([table.path, unknown]) == [unknown]


# The order


def owner(token: int | None, lease_id: str = "X") -> RoundOwner:
    return RoundOwner(lease_id, token, "driver-2")


@pytest.mark.parametrize(
    ("running", "claims", "supersedes"),
    [(None, None, True), (None, 1, True), (1, None, False), (1, 1, True), (2, 1, False), (1, 2, True)],
)
def test_a_driver_supersedes_rounds_of_its_attempt_and_of_older_ones(  # L17, S22
    managers: Managers, running: int | None, claims: int | None, supersedes: bool
) -> None:
    managers.add_table(1)
    changes = TieringChanges(managers.tiering.tables)
    (table,) = managers.tiering.tables.all()
    first = claim_table(changes, table, owner(running), BACKOFF, 1)
    begun = changes.table(1)
    assert begun is not None
    if supersedes:
        assert claim_table(changes, begun, owner(claims), BACKOFF, 2).tiering_epoch == first.tiering_epoch + 1
    else:
        with pytest.raises(FlussTieringError) as refused:
            claim_table(changes, begun, owner(claims), BACKOFF, 2)
        assert refused.value.code is ErrorCode.TABLE_BEING_TIERED
    with pytest.raises(FlussTieringError):
        claim_table(changes, begun, owner(9, "another lease"), BACKOFF, 2)


@cases("state", sorted(set(TieringState) - {TieringState.TIERING}))
def test_a_claim_by_name_takes_legal_steps_from_every_state(state: TieringState) -> None:  # S1, S3
    status = TieringStatus(1, TablePath("db", "t"), state, state_since=5, tiering_epoch=3)
    claimed = claimable(TieredTable(status, MINUTE, 0), 9).status
    was_pending = state is TieringState.PENDING
    assert (claimed.state, claimed.tiering_epoch) == (TieringState.PENDING, 3 if was_pending else 4)
    assert claimed.state_since == (5 if was_pending else 9)


def test_a_report_that_comes_twice_in_one_heartbeat_is_applied_once(managers: Managers) -> None:  # S9
    claims = [managers.claim(managers.add_table(table_id, freshness="0s")) for table_id in (1, 2)]
    finished, failed = (HeartbeatEntry(claim.table_id, claim.tiering_epoch) for claim in claims)
    answer = managers.tiering.heartbeat(Heartbeat(finished=(finished, finished), failed=(failed, failed)))
    assert (answer.finished_errors, answer.failed_errors) == ({}, {})
    assert managers.tiering.tables.all()[1].status.consecutive_failures == 1


def test_of_tables_that_became_pending_together_the_lower_id_comes_first(managers: Managers) -> None:  # S7, S8
    lower = managers.add_table(1, freshness="1h")
    claim = managers.claim(lower)
    managers.add_table(2, freshness="0s")
    entry = HeartbeatEntry(1, claim.tiering_epoch)
    heartbeat = Heartbeat(finished=(entry,), force_finished=frozenset({1}), requester=RoundOwner("", None, "d"))
    handed_out = managers.tiering.heartbeat(heartbeat).claim
    assert isinstance(handed_out, Claim)
    assert handed_out.path == lower.path


def test_a_table_that_is_handed_out_in_a_call_is_not_handed_out_again_in_it(managers: Managers) -> None:  # S22
    for table_id in (1, 2):
        managers.add_table(table_id, freshness="0s")
    changes = TieringChanges(managers.tiering.tables)
    first = changes.first_pending()
    assert first is not None
    changes.put(begin(first, owner(None), 1))
    then = changes.first_pending()
    assert then is None or then.status.table_id != first.status.table_id


def test_a_request_moves_due_tables_only_if_none_is_pending(managers: Managers, clock: VirtualClock) -> None:  # S7
    managers.add_table(1, freshness="0s")
    due = managers.add_table(2, freshness="1min")
    clock.advance(MINUTE)
    assert managers.request() is not None
    assert managers.state(due) is TieringState.SCHEDULED, "thousands may be due, and a heartbeat must not wait for that"
    assert managers.request() is not None
    assert managers.state(due) is TieringState.TIERING


def test_a_table_that_a_call_has_moved_already_is_not_moved_again_in_it(  # S1
    managers: Managers, clock: VirtualClock
) -> None:
    managers.add_table(1, freshness="1min")
    clock.advance(MINUTE)
    changes = TieringChanges(managers.tiering.tables)
    (due,) = managers.tiering.tables.all()
    changes.put(pend(due, clock.now_ms()))
    move_due(managers.tiering.tables, changes, clock.now_ms())
    moved = changes.table(1)
    assert moved is not None
    assert moved.status.tiering_epoch == 1


# Lists


def test_statuses_are_in_the_order_of_paths(managers: Managers) -> None:  # S16
    for table_id, name in ((1, "c"), (2, "a"), (3, "b")):
        managers.add_table(table_id, name=name)
    assert [status.path.table for status in managers.tiering.statuses()] == ["a", "b", "c"]


def test_rounds_are_of_the_table_that_is_asked_for(managers: Managers) -> None:  # S23, S25
    one, two = (managers.add_table(table_id, freshness="0s") for table_id in (1, 2))
    for table in (one, two, one):
        managers.finish(managers.claim(table, "X"))
    assert [each.table_id for each in managers.rounds(one.path, None, 10)] == [1, 1]
    assert [each.table_id for each in managers.rounds(two.path, "X", 10)] == [2]
    waited_on = managers.lease_outcome("X", None).rounds
    assert [(each.table_id, each.tiering_epoch) for each in waited_on] == [(1, 2), (2, 1)], "the newest of each table"


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


def test_totals_are_of_tables_that_are_tiered(managers: Managers) -> None:  # S20
    table = managers.add_table(1, freshness="0s")
    managers.finish(managers.claim(table), TieringStats(rows=5))
    managers.fail(managers.claim(table))
    assert (managers.tiering.totals.of(1).rows, managers.tiering.totals.of(1).failures) == (5, 1)
    managers.alter_table(table, SWITCHED_OFF)
    assert managers.tiering.totals.of(1) == TableTotals()


# S4, D3
def test_time_that_a_server_stood_still_is_given_to_running_rounds(managers: Managers, clock: VirtualClock) -> None:
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


# S12, S18
def test_a_success_leaves_nothing_of_the_failures_before_it(managers: Managers, clock: VirtualClock) -> None:
    table = managers.add_table(1, freshness="1h")
    for failures in (1, 2):
        managers.fail(managers.claim(table), "disk full")
        assert managers.status(table).consecutive_failures == failures
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
