"""Tables that fail again and again, and what ends it: seed S19."""

from __future__ import annotations

import random

import pytest
from manager_support import BACKOFF_BASE, BACKOFF_CAP, Managers

from engine_support import HOUR, MINUTE, VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.server.core.tiering.states import MAX_CONSECUTIVE_FAILURES, MAX_INTERRUPTIONS, FailureBackoff
from fluss_tiering.server.settings.server_settings import ServerSettings

DAY = 24 * 60 * MINUTE


def fail_to_the_end(managers: Managers, table: TableInfo, error: str = "no space left\nat line 2") -> None:
    for _ in range(MAX_CONSECUTIVE_FAILURES):
        managers.fail(managers.claim(table), error)


def resumed(managers: Managers, *tables: TableInfo) -> list[TieringStatus | FlussTieringError]:
    return managers.tiering.resume([table.path for table in tables])


def test_after_ten_failures_in_a_row_a_table_is_parked(managers: Managers, clock: VirtualClock) -> None:  # S19
    table, healthy = managers.add_table(1, freshness="0s"), managers.add_table(2, freshness="0s")
    for failures in range(1, MAX_CONSECUTIVE_FAILURES):
        managers.fail(managers.claim(table))
        status = managers.status(table)
        assert (status.consecutive_failures, status.parked) == (failures, False)
        assert status.next_retry_time is not None
    managers.fail(managers.claim(table))
    managers.restart()
    status = managers.status(table)
    assert (status.state, status.next_retry_time, status.parked) == (TieringState.FAILED, None, True)
    assert status.consecutive_failures == MAX_CONSECUTIVE_FAILURES == ServerSettings().max_consecutive_failures == 10
    clock.advance(365 * DAY)
    managers.tiering.move_due_tables()
    assert managers.status(table) == status
    handed_out = managers.request()
    assert handed_out is not None
    assert handed_out.path == healthy.path, "one bad table never slows the others"
    assert managers.request() is None


def test_a_table_fails_from_its_first_failure_until_a_round_succeeds_or_somebody_resumes_it(  # E30
    managers: Managers, clock: VirtualClock
) -> None:
    table = managers.add_table(1, freshness="0s")

    def seen() -> tuple[bool, int | None]:
        status = managers.status(table)
        return status.failing, status.failing_since

    assert seen() == (False, None)
    for end in (
        lambda: managers.finish(managers.claim(table)),
        lambda: managers.tiering.resume([table.path]),
    ):
        clock.advance(MINUTE)
        first = clock.now_ms()
        managers.fail(managers.claim(table))
        clock.advance(HOUR)
        managers.tiering.move_due_tables()
        assert managers.state(table) is TieringState.PENDING
        assert seen() == (True, first), "while it waits for its next round, too"
        managers.fail(managers.claim(table))
        managers.restart()
        managers.claim(table, "other")
        managers.tiering.cancel("other", None, "stopped")
        assert managers.state(table) is TieringState.FAILED
        assert seen() == (True, first)
        assert not managers.status(table).interrupted
        end()
        assert seen() == (False, None)
    managers.claim(table, "other")
    managers.tiering.cancel("other", None, "stopped")
    assert (managers.status(table).interrupted, seen()) == (True, (False, None))


def test_the_number_of_failures_can_be_chosen() -> None:  # S19
    backoff = FailureBackoff(BACKOFF_BASE, BACKOFF_CAP, random.Random(1), 2)
    assert backoff.retry_time(1, 1000) is not None
    assert backoff.retry_time(2, 1000) is backoff.retry_time(3, 1000) is None


def test_resumed_tables_are_pending_at_once_and_counted_anew(managers: Managers) -> None:  # S19
    parked, resting = managers.add_table(1, freshness="1h"), managers.add_table(2, freshness="1h")
    fail_to_the_end(managers, parked)
    managers.fail(managers.claim(resting))
    epoch = managers.status(parked).tiering_epoch
    answers = resumed(managers, parked, resting)
    managers.restart()
    for table, answer in zip((parked, resting), answers, strict=True):
        status = managers.status(table)
        assert status == answer
        assert (status.state, status.consecutive_failures, status.parked) == (TieringState.PENDING, 0, False)
        assert status.last_error is not None, "cleared on a finish alone (S12)"
    assert managers.status(parked).tiering_epoch == epoch + 1
    managers.fail(managers.claim(parked))
    assert (managers.status(parked).consecutive_failures, managers.status(parked).parked) == (1, False)


def test_resuming_touches_no_table_that_has_not_failed(managers: Managers) -> None:  # S19
    scheduled, running = managers.add_table(1, freshness="1h"), managers.add_table(2)
    claim = managers.claim(running)
    before = managers.tiering.statuses()
    unknown = TablePath("db", "unknown")
    answers = managers.tiering.resume([scheduled.path, unknown, running.path, scheduled.path])
    assert [answer for answer in answers if isinstance(answer, TieringStatus)] == [before[0], before[1], before[0]]
    assert isinstance(answers[1], FlussTieringError)
    assert managers.tiering.statuses() == before
    assert not managers.beat(claim).tiering_errors


def test_a_scheduled_table_is_made_pending_before_its_time_if_that_is_wanted(managers: Managers) -> None:
    scheduled, parked = managers.add_table(1, freshness="1h"), managers.add_table(2, freshness="1h")
    fail_to_the_end(managers, parked)
    running = managers.add_table(3)
    claim = managers.claim(running)
    epochs = {each.path: managers.status(each).tiering_epoch for each in (scheduled, parked)}
    tables = [scheduled.path, parked.path, running.path, scheduled.path]
    for _ in range(2):
        answers = managers.tiering.resume(tables, include_scheduled=True)
        assert [getattr(each, "state", None) for each in answers] == [
            *(TieringState.PENDING, TieringState.PENDING, TieringState.TIERING, TieringState.PENDING),
        ]
        for each in (scheduled, parked):
            assert managers.status(each).tiering_epoch == epochs[each.path] + 1
    assert not managers.beat(claim).tiering_errors
    managers.restart()
    assert managers.state(scheduled) is TieringState.PENDING


def test_another_definition_ends_parking_alone(managers: Managers) -> None:  # S19
    parked, resting = managers.add_table(1, freshness="1h"), managers.add_table(2, freshness="1h")
    fail_to_the_end(managers, parked)
    managers.fail(managers.claim(resting))
    before = managers.status(resting)
    managers.alter_table(parked, {"iceberg.write.target-file-size-bytes": "1000000"})
    managers.alter_table(resting, {"iceberg.write.target-file-size-bytes": "1000000"})
    managers.restart()
    assert managers.state(parked) is TieringState.PENDING
    assert managers.status(parked).consecutive_failures == 0
    assert managers.status(resting) == before, "a rest is not cut short"


# D64, S19
def test_a_round_that_somebody_cancelled_is_no_failure_of_its_table(managers: Managers, clock: VirtualClock) -> None:
    table = managers.add_table(1, freshness="0s")
    managers.fail(managers.claim(table))
    managers.claim(table, "X", managers.acquire("X", 1000, {}).attempt_token)
    for _ in range(MAX_CONSECUTIVE_FAILURES + 1):
        managers.tiering.cancel("X", None, "stopped by hand")
        status = managers.status(table)
        assert (status.state, status.last_error, status.interruptions) == (TieringState.FAILED, "stopped by hand", 0)
        assert managers.rounds(table.path, None, 1)[0].interrupted
        assert status.next_retry_time is not None
        assert BACKOFF_BASE / 2 <= status.next_retry_time - clock.now_ms() <= BACKOFF_BASE
        managers.claim(table, "X", managers.acquire("X", 1000, {}).attempt_token)
        assert managers.status(table).consecutive_failures == 1
    assert managers.tiering.totals.of(1).failures == 1


@pytest.mark.parametrize("same_attempt", [True, False])
def test_a_table_whose_drivers_vanish_is_parked_however_quickly_they_are_replaced(  # D16, S19
    managers: Managers, same_attempt: bool
) -> None:
    poison, other = managers.add_table(1), managers.add_table(2)
    token = managers.acquire("X", 1000, {}).attempt_token

    def claim_again(table: TableInfo) -> None:
        nonlocal token
        if not same_attempt:
            token = managers.acquire("X", 1000, {}).attempt_token
        managers.claim(table, "X", token)

    claim_again(poison)
    for ends in range(1, MAX_INTERRUPTIONS + MAX_CONSECUTIVE_FAILURES):
        claim_again(poison)
        claim_again(other)
        managers.finish(managers.claim(other, "X", token))
        assert managers.status(poison).consecutive_failures == max(0, ends - MAX_INTERRUPTIONS)
    with pytest.raises(FlussTieringError) as refused:
        claim_again(poison)
    assert refused.value.code is ErrorCode.TABLE_PARKED
    assert "reported an outcome" in refused.value.message
    assert managers.status(poison).parked
    assert managers.state(other) is TieringState.SCHEDULED
    assert managers.status(other).consecutive_failures == 0
    managers.restart()
    assert managers.status(poison).parked
    managers.tiering.resume([poison.path])
    claim_again(poison)


def test_a_round_ends_that_only_its_heartbeats_keep_alive(managers: Managers, clock: VirtualClock) -> None:  # D16, S4
    table = managers.add_table(1)
    claim = managers.claim(table)
    for _ in range(7 * 24 - 1):
        clock.advance(HOUR)
        assert not managers.beat(claim).tiering_errors
        managers.tiering.end_overdue_rounds()
        assert managers.state(table) is TieringState.TIERING
    managers.restart()
    assert managers.state(table) is TieringState.TIERING, "the start of the round is remembered"
    clock.advance(HOUR)
    managers.beat(claim)
    managers.tiering.end_overdue_rounds()
    status = managers.status(table)
    assert status.state is TieringState.FAILED
    assert status.last_error is not None
    assert "took too long" in status.last_error
    assert "max-round-duration allows 604800 s" in status.last_error
    assert "driver-1" in status.last_error
    assert managers.beat(claim).tiering_errors
