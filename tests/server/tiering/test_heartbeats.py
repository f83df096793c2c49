"""Heartbeats, time-outs and what they leave behind: seeds S4-S12, S15, S23, S25."""

from __future__ import annotations

import pytest
from manager_support import HEARTBEAT_TIMEOUT, Managers

from engine_support import MINUTE, VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import (
    MAX_KEPT_ERROR_CHARS,
    Claim,
    HeartbeatEntry,
    TieringState,
    TieringStats,
)
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat
from fluss_tiering.server.core.tiering.states import RoundOwner

STATS = TieringStats(rows=10, bytes=1000, files=2, lake_snapshot_id=77)


def entry(claim: Claim, **fields: object) -> HeartbeatEntry:
    return HeartbeatEntry(claim.table_id, claim.tiering_epoch, **fields)


def test_a_silent_round_fails(managers: Managers, clock: VirtualClock) -> None:  # S4, S6, S10
    table = managers.add_table(1)
    claim = managers.claim(table)
    for _ in range(8):
        clock.advance(30_000)
        assert not managers.beat(claim).tiering_errors
        managers.tiering.end_overdue_rounds()
    clock.advance(HEARTBEAT_TIMEOUT - 1)
    managers.tiering.end_overdue_rounds()
    assert managers.state(table) is TieringState.TIERING
    clock.advance(1)
    managers.tiering.end_overdue_rounds()
    status = managers.status(table)
    assert status.state is TieringState.FAILED
    assert status.last_error is not None
    assert status.last_error.startswith("heartbeat timed out after 120 s")
    assert "driver-1" in status.last_error
    assert status.last_error_time == clock.now_ms()


def test_a_restarted_server_gives_drivers_their_time_anew(managers: Managers, clock: VirtualClock) -> None:  # S4, S24
    table = managers.add_table(1)
    claim = managers.claim(table)
    clock.advance(60 * MINUTE)
    managers.restart()
    managers.tiering.end_overdue_rounds()
    assert managers.state(table) is TieringState.TIERING
    assert not managers.beat(claim).tiering_errors


def test_a_timed_out_round_cannot_come_back(managers: Managers, clock: VirtualClock) -> None:  # S5, upstream 2648
    table = managers.add_table(1, freshness="0s")
    stale = managers.claim(table)
    clock.advance(HEARTBEAT_TIMEOUT)
    managers.tiering.end_overdue_rounds()
    assert managers.finish(stale).finished_errors[1].code is ErrorCode.INVALID_TIERING_STATE
    assert managers.beat(stale).tiering_errors[1].code is ErrorCode.INVALID_TIERING_STATE
    assert managers.state(table) is TieringState.FAILED
    fresh = managers.claim(table)
    assert managers.finish(stale).finished_errors[1].code is ErrorCode.FENCED_TIERING_EPOCH
    assert managers.state(table) is TieringState.TIERING
    assert not managers.finish(fresh, STATS).finished_errors


@pytest.mark.parametrize("report", ["tiering", "finished", "failed"])
def test_stale_epochs_are_fenced_table_by_table(managers: Managers, report: str) -> None:  # S5
    fenced, dropped, alien, good = (managers.add_table(table_id, freshness="0s") for table_id in (1, 2, 3, 4))
    claims = {table.table_id: managers.claim(table) for table in (fenced, dropped, alien, good)}
    managers.drop_table(2)
    entries = (
        HeartbeatEntry(1, claims[1].tiering_epoch - 1),
        entry(claims[2]),
        entry(claims[3], coordinator_epoch=4),
        entry(claims[4]),
    )
    answer = managers.tiering.heartbeat(Heartbeat(**{report: entries}))
    refused = {"tiering": answer.tiering_errors, "finished": answer.finished_errors, "failed": answer.failed_errors}
    assert {table_id: error.code for table_id, error in refused[report].items()} == {
        1: ErrorCode.FENCED_TIERING_EPOCH,
        2: ErrorCode.TABLE_NOT_EXIST,
        3: ErrorCode.INVALID_COORDINATOR,
    }
    assert managers.state(fenced) is managers.state(alien) is TieringState.TIERING
    expected = {"tiering": TieringState.TIERING, "finished": TieringState.PENDING, "failed": TieringState.FAILED}
    assert managers.state(good) is expected[report], "the others were processed"


def test_failed_then_tiering_then_finished_then_work(managers: Managers, clock: VirtualClock) -> None:  # S7
    failing, finishing, waiting = (managers.add_table(table_id, freshness="0s") for table_id in (1, 2, 3))
    failed, finished = managers.claim(failing), managers.claim(finishing)
    clock.advance(1)
    answer = managers.tiering.heartbeat(
        Heartbeat(
            tiering=(entry(failed), entry(finished)),
            finished=(entry(finished),),
            failed=(entry(failed, error_message="boom"),),
            requester=RoundOwner("", None, "d"),
        )
    )
    assert answer.tiering_errors.keys() == {1}, "failed came before still tiering"
    assert not answer.finished_errors, "still tiering came before finished"
    assert answer.claim is not None
    assert answer.claim.path == waiting.path, "the one that waits longest, not the one just finished"
    assert managers.request() == Claim(2, finishing.path, finished.tiering_epoch + 1, finished.coordinator_epoch)
    assert managers.request() is None


def test_work_is_handed_out_first_in_first_out(managers: Managers, clock: VirtualClock) -> None:  # S7
    for table_id, freshness in ((1, "30s"), (2, "10s"), (3, "20s"), (4, "5s")):
        managers.add_table(table_id, freshness=freshness)
    for _ in range(30):
        clock.advance(1000)
        managers.tiering.move_due_tables()
    managers.drop_table(4)
    managers.restart()
    handed_out = [claim.table_id for claim in iter(managers.request, None)]
    assert handed_out == [2, 3, 1], "and a dropped table is skipped"


def test_force_finished_is_pending_at_once(managers: Managers) -> None:  # S8
    table = managers.add_table(1)
    claim = managers.claim(table)
    managers.finish(claim, STATS, forced=True)
    status = managers.status(table)
    assert (status.state, status.tiering_epoch) == (TieringState.PENDING, claim.tiering_epoch + 1)
    assert (status.consecutive_failures, status.last_error) == (0, None)
    (tiering_round,) = managers.rounds(table.path, None, 10)
    assert (tiering_round.state, tiering_round.force_finished) == (TieringState.TIERED, True)


def test_force_finished_without_finished_is_refused_whole(managers: Managers) -> None:  # S8
    one, two = managers.add_table(1), managers.add_table(2)
    first, second = managers.claim(one), managers.claim(two)
    forced = frozenset({1, second.table_id, 8})
    with pytest.raises(FlussTieringError, match=r"\[2, 8\]$") as refused:
        managers.tiering.heartbeat(Heartbeat(finished=(entry(first),), force_finished=forced))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert managers.state(one) is managers.state(two) is TieringState.TIERING


def test_a_repeated_finish_changes_nothing(managers: Managers, clock: VirtualClock) -> None:  # S9
    table = managers.add_table(1, freshness="0s")
    claim = managers.claim(table)
    managers.finish(claim, STATS)
    before = managers.status(table)
    clock.advance(1000)
    assert not managers.finish(claim, TieringStats(rows=99)).finished_errors
    managers.restart()
    assert not managers.finish(claim).finished_errors
    assert managers.status(table) == before
    managers.claim(table)
    assert not managers.finish(claim).finished_errors, "also when the next round runs"
    assert managers.state(table) is TieringState.TIERING


def test_a_repeated_failure_changes_nothing(managers: Managers) -> None:  # S9
    table = managers.add_table(1)
    claim = managers.claim(table)
    managers.fail(claim, "first")
    before = managers.status(table)
    assert not managers.fail(claim, "second").failed_errors
    assert managers.status(table) == before


@pytest.mark.parametrize("error", ["executor 2 was lost", "cannot plan splits: offsets are gone"])
def test_a_reported_reason_is_kept(managers: Managers, clock: VirtualClock, error: str) -> None:  # S10
    table = managers.add_table(1)
    managers.fail(managers.claim(table), error)
    managers.restart()
    status = managers.status(table)
    assert (status.last_error, status.last_error_time) == (error, clock.now_ms())
    (tiering_round,) = managers.rounds(table.path, None, 10)
    assert (tiering_round.error, tiering_round.end_time) == (error, clock.now_ms())


def test_errors_are_masked_and_cut(managers: Managers) -> None:  # S11
    table = managers.add_table(1)
    managers.fail(managers.claim(table), "s3.secret-access-key=hunter2 " + "é😀" * 4096)
    kept = managers.status(table).last_error
    assert kept is not None
    assert len(kept) == MAX_KEPT_ERROR_CHARS
    assert "hunter2" not in kept
    assert kept.startswith("s3.secret-access-key=*** é😀")


def test_a_failure_without_a_reason_breaks_nothing(managers: Managers, clock: VirtualClock) -> None:  # S15
    table = managers.add_table(1)
    managers.fail(managers.claim(table), "old reason")
    managers.fail(managers.claim(table), None)
    status = managers.status(table)
    assert (status.state, status.last_error, status.last_error_time) == (TieringState.FAILED, None, clock.now_ms())


def test_an_empty_round_finishes_without_a_lake_snapshot(managers: Managers) -> None:  # S21
    table = managers.add_table(1)
    assert not managers.finish(managers.claim(table), TieringStats()).finished_errors
    assert managers.lake.newest(1) is None
    assert managers.rounds(table.path, None, 1)[0].stats == TieringStats(0, 0, 0, None)


def test_history_keeps_the_last_rounds(managers: Managers, clock: VirtualClock) -> None:  # S23
    table = managers.add_table(1, freshness="0s")
    for number in range(8):
        claim = managers.claim(table, lease_id=f"lease {number}")
        clock.advance(1000)
        managers.finish(claim, TieringStats(rows=number))
    managers.restart()
    rounds = managers.rounds(table.path, None, 100)
    assert [each.tiering_epoch for each in rounds] == [8, 7, 6, 5, 4], "the newest five"
    newest = rounds[0]
    assert (newest.lease_id, newest.driver, newest.stats) == ("lease 7", "driver-1", TieringStats(rows=7))
    assert (newest.start_time, newest.end_time) == (clock.now_ms() - 1000, clock.now_ms())
    assert len(managers.rounds(None, None, 2)) == 2
    assert [each.tiering_epoch for each in managers.rounds(None, "lease 5", 10)] == [6]


def test_waiters_see_the_outcome_after_the_table_moved_on(managers: Managers) -> None:  # S25
    tiered, failed = managers.add_table(1, freshness="0s"), managers.add_table(2, freshness="0s")
    first, second = managers.claim(tiered, "X"), managers.claim(failed, "X")
    assert {each.state for each in managers.lease_outcome("X", None).rounds} == {TieringState.TIERING}
    managers.finish(first, STATS)
    managers.fail(second, "disk full")
    assert managers.state(tiered) is TieringState.PENDING
    managers.restart()
    outcome = {each.path: each for each in managers.lease_outcome("X", None).rounds}
    assert (outcome[tiered.path].state, outcome[tiered.path].stats) == (TieringState.TIERED, STATS)
    assert outcome[tiered.path].tiering_epoch == first.tiering_epoch
    assert (outcome[failed.path].state, outcome[failed.path].error) == (TieringState.FAILED, "disk full")


@pytest.mark.parametrize("state", [TieringState.TIERED, TieringState.FAILED])
def test_waiters_on_a_table_that_is_dropped_after_its_round_see_the_outcome(
    managers: Managers, clock: VirtualClock, state: TieringState
) -> None:  # S20, S25, D13, D17, Fluss #3483
    table = managers.add_table(1, freshness="0s")
    for lease_id in ("older", "X", "X"):
        claim = managers.claim(table, lease_id)
        if state is TieringState.TIERED:
            managers.finish(claim, STATS)
        else:
            managers.fail(claim, "disk full")
    managers.claim(table, "runs")
    clock.advance(MINUTE)
    managers.drop_table(1)
    dropped = clock.now_ms()
    for _ in range(2):
        assert [each.tiering_epoch for each in managers.rounds(None, "X", 10)] == [3], "one for each lease"
        assert managers.rounds(table.path, None, 10) == [], "the history of a table ends with it"
        assert managers.rounds(None, None, 10) == []
        for lease_id in ("older", "X"):
            (outcome,) = managers.lease_outcome(lease_id, None).rounds
            expected = (STATS, None) if state is TieringState.TIERED else (None, "disk full")
            assert (outcome.state, outcome.stats, outcome.error) == (state, *expected)
        (running,) = managers.lease_outcome("runs", None).rounds
        assert (running.state, running.error) == (TieringState.FAILED, "the table was dropped")
        assert running.end_time == dropped
        managers.restart()


def test_a_dropped_tables_outcome_is_forgotten_after_a_week(managers: Managers, clock: VirtualClock) -> None:  # S23
    managers.claim(managers.add_table(1), "X")
    managers.drop_table(1)
    clock.advance(7 * 24 * 60 * MINUTE)
    for kept in (True, False):  # D15: also while the server runs
        managers.tiering.prune_dropped()
        assert bool(managers.lease_outcome("X", None).rounds) == kept
        clock.advance(1)
    managers.claim(managers.add_table(2), "Y")
    managers.drop_table(2)
    managers.restart()
    clock.advance(8 * 24 * 60 * MINUTE)
    managers.tiering.prune_dropped()
    assert managers.lease_outcome("Y", None).rounds == ()


def test_what_cannot_be_persisted_did_not_happen(managers: Managers) -> None:  # S24, L10
    running, waiting = managers.add_table(1, freshness="0s"), managers.add_table(2, freshness="0s")
    claim = managers.claim(running)
    before = managers.tiering.statuses()
    for change in (
        lambda: managers.finish(claim),
        lambda: managers.fail(claim),
        lambda: managers.claim(waiting),
        managers.request,
        lambda: managers.tiering.cancel("lease", None, "stop"),
        lambda: managers.tiering.remove(2),
    ):
        with managers.failing_disk(), pytest.raises(FlussTieringError) as refused:
            change()
        assert refused.value.code is ErrorCode.STORAGE
        assert managers.tiering.statuses() == before
    assert not managers.beat(claim).tiering_errors
    managers.restart()
    assert managers.tiering.statuses() == before


def test_a_heartbeat_alone_writes_nothing(managers: Managers) -> None:  # S4
    claim = managers.claim(managers.add_table(1))
    with managers.failing_disk():
        assert not managers.beat(claim).tiering_errors
