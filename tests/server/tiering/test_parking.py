"""Tables that fail again and again, and what ends it: seed S19."""

from __future__ import annotations

import random

import pytest
from manager_support import BACKOFF_BASE, BACKOFF_CAP, Managers

from engine_support import MINUTE, VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.server.tiering.states import MAX_CONSECUTIVE_FAILURES, FailureBackoff

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
    assert status.consecutive_failures == MAX_CONSECUTIVE_FAILURES == 10
    clock.advance(365 * DAY)
    managers.tiering.move_due_tables()
    assert managers.status(table) == status
    handed_out = managers.request()
    assert handed_out is not None
    assert handed_out.path == healthy.path, "one bad table never slows the others"
    assert managers.request() is None


def test_the_number_of_failures_can_be_chosen() -> None:  # S19
    backoff = FailureBackoff(BACKOFF_BASE, BACKOFF_CAP, random.Random(1), 2)
    assert backoff.retry_time(1, 1000) is not None
    assert backoff.retry_time(2, 1000) is backoff.retry_time(3, 1000) is None


def test_a_claim_of_a_parked_table_is_refused_with_what_to_do(managers: Managers) -> None:  # S19
    table = managers.add_table(1)
    fail_to_the_end(managers, table)
    before = managers.status(table)
    with pytest.raises(FlussTieringError) as refused:
        managers.claim(table)
    assert refused.value.code is ErrorCode.TABLE_PARKED
    assert "no space left;" in refused.value.message
    assert "line 2" not in refused.value.message
    assert f"fluss-tiering resume {table.path}" in refused.value.message
    assert managers.status(table) == before


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


@pytest.mark.parametrize("how", ["superseded", "cancelled"])
def test_a_round_that_somebody_ended_is_no_failure_of_its_table(
    managers: Managers, clock: VirtualClock, how: str
) -> None:  # S19
    table = managers.add_table(1, freshness="0s")
    managers.fail(managers.claim(table))
    managers.claim(table, "X", managers.acquire("X", 1000, {}).attempt_token)
    for _ in range(MAX_CONSECUTIVE_FAILURES + 1):
        if how == "cancelled":
            managers.tiering.cancel("X", None, "stopped by hand")
            status = managers.status(table)
            assert (status.state, status.last_error) == (TieringState.FAILED, "stopped by hand")
            assert status.next_retry_time is not None
            assert BACKOFF_BASE / 2 <= status.next_retry_time - clock.now_ms() <= BACKOFF_BASE
        managers.claim(table, "X", managers.acquire("X", 1000, {}).attempt_token)
        assert managers.status(table).consecutive_failures == 1
    _, ended = managers.tiering.rounds(table.path, None, 2)
    assert ended.state is TieringState.FAILED
    assert (ended.error or "").startswith({"superseded": "superseded by driver", "cancelled": "stopped by hand"}[how])
    assert managers.tiering.totals.of(1).failures == 1


def test_a_time_out_is_a_failure(managers: Managers, clock: VirtualClock) -> None:  # S19, S4
    table = managers.add_table(1)
    for _ in range(MAX_CONSECUTIVE_FAILURES):
        managers.claim(table)
        clock.advance(10 * MINUTE)
        managers.tiering.fail_silent_rounds()
    assert managers.status(table).parked
