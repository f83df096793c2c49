"""Rounds that something other than their table ended: they are told as interrupted, and the table is not blamed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest
from manager_support import BACKOFF_BASE, HEARTBEAT_TIMEOUT, Managers

from engine_support import VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import HeartbeatEntry, TieringRound, TieringState
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat
from fluss_tiering.server.core.tiering.states import MAX_CONSECUTIVE_FAILURES, MAX_INTERRUPTIONS

LONGEST_ROUND = 7 * 24 * 60 * 60 * 1000


def interrupt_by_report(managers: Managers, table: TableInfo, error: str | None = "the JVM was killed") -> None:
    claim = managers.claim(table)
    entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, error_message=error, interrupted=True)
    assert not managers.tiering.heartbeat(Heartbeat(failed=(entry,))).failed_errors


def lose_driver(managers: Managers, table: TableInfo) -> None:
    managers.claim(table)
    managers.clock.advance(HEARTBEAT_TIMEOUT)
    managers.tiering.end_overdue_rounds()


INTERRUPTED: dict[str, tuple[Callable[[Managers, TableInfo], None], str]] = {
    "reported": (interrupt_by_report, "the JVM was killed"),
    "lost driver": (lose_driver, "heartbeat timed out after 120 s"),
}


def newest(managers: Managers, table: TableInfo) -> TieringRound:
    (ended,) = managers.rounds(table.path, None, 1)
    return ended


# D64, S19
@pytest.mark.parametrize("how", INTERRUPTED)
def test_an_interrupted_round_is_no_failure_of_its_table(managers: Managers, clock: VirtualClock, how: str) -> None:
    interrupt, error = INTERRUPTED[how]
    table = managers.add_table(1)
    managers.fail(managers.claim(table))
    for _ in range(MAX_INTERRUPTIONS):
        interrupt(managers, table)
        managers.restart()
        ended = newest(managers, table)
        assert (ended.state, ended.interrupted) == (TieringState.FAILED, True)
        status = managers.status(table)
        assert (status.state, status.consecutive_failures, status.parked) == (TieringState.FAILED, 1, False)
        assert status.last_error == ended.error
        assert (status.last_error or "").startswith(error)
        assert status.last_error_time == clock.now_ms()
        assert status.next_retry_time is not None
        assert BACKOFF_BASE / 2 <= status.next_retry_time - clock.now_ms() <= BACKOFF_BASE


@pytest.mark.parametrize("how", INTERRUPTED)
def test_a_table_that_ends_each_of_its_drivers_is_parked_at_last(managers: Managers, how: str) -> None:  # D64, D16
    interrupt, error = INTERRUPTED[how]
    table = managers.add_table(1)
    for _ in range(MAX_INTERRUPTIONS):
        interrupt(managers, table)
    for failures in range(1, MAX_CONSECUTIVE_FAILURES + 1):
        interrupt(managers, table)
        managers.restart()
        ended = newest(managers, table)
        assert not ended.interrupted
        assert managers.status(table).consecutive_failures == failures
        told = f"counts as a failure, because {MAX_INTERRUPTIONS + failures} rounds of the table in a row"
        assert (ended.error or "").startswith(error)
        assert told in (ended.error or "")
    assert managers.status(table).parked
    managers.tiering.resume([table.path])
    interrupt(managers, table)
    assert newest(managers, table).interrupted, "counted anew"


@pytest.mark.parametrize("end", ["succeeds", "fails"])
def test_a_round_that_ends_by_itself_ends_the_row(managers: Managers, end: str) -> None:  # D64
    table = managers.add_table(1)
    for _ in range(2):
        for _ in range(MAX_INTERRUPTIONS):
            interrupt_by_report(managers, table)
        assert newest(managers, table).interrupted
        (managers.finish if end == "succeeds" else managers.fail)(managers.claim(table))


def test_a_round_that_takes_too_long_is_a_failure(managers: Managers, clock: VirtualClock) -> None:  # D64, S4
    table = managers.add_table(1)
    claim = managers.claim(table)
    clock.advance(LONGEST_ROUND)
    managers.beat(claim)
    managers.tiering.end_overdue_rounds()
    assert not newest(managers, table).interrupted
    assert managers.status(table).consecutive_failures == 1


def test_interrupted_rounds_have_a_total_of_their_own(managers: Managers) -> None:  # D64
    table = managers.add_table(1)
    managers.fail(managers.claim(table))
    for _ in range(MAX_INTERRUPTIONS + 1):
        interrupt_by_report(managers, table)
    totals = managers.tiering.totals.of(1)
    assert (totals.failures, totals.interruptions) == (2, MAX_INTERRUPTIONS)
    interrupt_by_report(managers, table, None)
    assert (managers.status(table).last_error or "").startswith("the driver ended the round and gave no reason")


@pytest.mark.sampled(1)
@pytest.mark.slow
def test_a_random_history_agrees_with_a_plain_model(managers: Managers) -> None:  # D64, S19
    """The model: a list of what happened. A counted loss is one after three that nothing but cancellations part."""
    chance = random.Random(64)
    table = managers.add_table(1)
    row = failures = 0
    for _ in range(150):
        token = managers.acquire("X", 1000, {}).attempt_token
        claim = managers.claim(table, "X", token)
        match chance.choices(
            ["succeed", "fail", "cancel", "lose", "report", "supersede", "restart"], [1, 1, 2, 3, 3, 2, 1]
        )[0]:
            case "succeed":
                managers.finish(claim)
                row = failures = 0
            case "fail":
                managers.fail(claim)
                row, failures = 0, failures + 1
            case "cancel":
                managers.tiering.cancel("X", token, "no longer wanted")
            case "restart":
                managers.restart()
                managers.finish(claim)
                row = failures = 0
            case how:
                if how == "lose":
                    managers.clock.advance(HEARTBEAT_TIMEOUT)
                    managers.tiering.end_overdue_rounds()
                elif how == "report":
                    entry = HeartbeatEntry(1, claim.tiering_epoch, error_message="gone", interrupted=True)
                    managers.tiering.heartbeat(Heartbeat(failed=(entry,)))
                else:
                    newer = managers.acquire("X", 1000, {}).attempt_token
                    with contextlib.suppress(FlussTieringError):  # the superseded round may have parked the table
                        managers.claim(table, "X", newer)
                    managers.tiering.cancel("X", newer, "only the superseded round is looked at")
                row += 1
                failures += row > MAX_INTERRUPTIONS
                rounds = {each.tiering_epoch: each for each in managers.rounds(table.path, None, 5)}
                assert rounds[claim.tiering_epoch].interrupted is (row <= MAX_INTERRUPTIONS)
        status = managers.status(table)
        assert (status.consecutive_failures, status.interruptions) == (failures, row)
        if status.parked:
            managers.tiering.resume([table.path])
            row = failures = 0


# The reason of a cancellation


def test_the_first_reason_of_a_cancellation_stays(managers: Managers) -> None:  # D63, S10
    table, later = managers.add_table(1), managers.add_table(2)
    token = managers.acquire("X", 1000, {}).attempt_token
    managers.claim(table, "X", token)
    managers.tiering.cancel("X", token, "Spark ended with exit code 1:\n  the disk\tis full\n")
    managers.tiering.cancel("X", token, "task submit failed")
    managers.tiering.cancel("X", None, "task submit failed")
    managers.restart()
    managers.tiering.cancel("X", token, "task submit failed")
    reason = "Spark ended with exit code 1: the disk is full"
    outcome = managers.lease_outcome("X", token)
    assert outcome.cancelled_reason == reason
    assert [(each.error, each.interrupted) for each in outcome.rounds] == [(reason, True)]
    assert managers.status(table).last_error == reason
    newer = managers.acquire("X", 1000, {}).attempt_token
    managers.claim(later, "X", newer)
    managers.tiering.cancel("X", newer, "cleared by hand")
    assert managers.lease_outcome("X", newer).cancelled_reason == "cleared by hand"
    assert managers.status(later).last_error == "cleared by hand"
    for reason in ("", " \n "):
        managers.tiering.cancel("Y", token := managers.acquire("Y", 1000, {}).attempt_token, reason)
        assert managers.lease_outcome("Y", token).cancelled_reason == "cancelled without a reason"


def test_a_driver_whose_attempt_was_forgotten_can_be_cancelled(managers: Managers) -> None:
    """An application that follows log tables runs for weeks without a lease."""
    table = managers.add_table(1)
    token = managers.acquire("X", 1000, {}).attempt_token
    managers.clock.advance(8 * 24 * 3_600_000)
    managers.leases.prune_attempts()
    assert managers.attempts.newest("X") is None
    managers.claim(table, "X", token)
    managers.tiering.cancel("X", token, "stopped by hand")
    assert managers.lease_outcome("X", token).cancelled_reason == "stopped by hand"
    managers.restart()
    with pytest.raises(FlussTieringError) as refused:
        managers.claim(table, "X", token)
    assert refused.value.code is ErrorCode.STALE_ATTEMPT
    newer = managers.acquire("X", 1000, {}).attempt_token
    assert newer > token
    managers.claim(table, "X", newer)
    managers.tiering.cancel("unknown", newer + 100_000, "a token that nobody has")
    assert managers.attempts.newest("unknown") is None
