"""Claims by name, attempts and their cancelling, and coordinator epochs, which tell rounds of two servers apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from manager_support import Managers
from refusals import refused

from engine_support import MINUTE
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, HeartbeatEntry, TieringState, TieringStatus
from fluss_tiering.server.core.tiering.fence import next_coordinator_epoch
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat
from fluss_tiering.server.core.tiering.states import RoundOwner


def begin_attempt(managers: Managers, lease_id: str = "X") -> int:
    return managers.acquire(lease_id, 1000, {}).attempt_token


def test_a_newer_attempt_takes_the_round_over(managers: Managers) -> None:  # S5, L17, D64
    table = managers.add_table(1)
    old = managers.claim(table, "X", begin_attempt(managers))
    token = begin_attempt(managers)
    new = managers.claim(table, "X", token)
    assert new.tiering_epoch == old.tiering_epoch + 1
    assert managers.finish(old).finished_errors[1].code is ErrorCode.FENCED_TIERING_EPOCH
    newest, superseded = managers.rounds(table.path, None, 10)
    assert newest.state is TieringState.TIERING
    assert superseded.state is TieringState.FAILED
    assert (newest.interrupted, superseded.interrupted) == (False, True)
    assert managers.status(table).consecutive_failures == 0
    assert superseded.error is not None
    assert superseded.error.startswith(f"superseded by driver driver-1, attempt {token} of the same lease")
    managers.tiering.claim([table.path], RoundOwner("X", begin_attempt(managers), driver=""))
    superseded = managers.rounds(table.path, None, 10)[1]
    assert superseded.error is not None
    assert superseded.error.startswith("superseded by driver unknown, attempt ")


def test_a_restarted_driver_of_the_same_attempt_takes_its_own_round_over(managers: Managers) -> None:  # L17
    table = managers.add_table(1)
    token = begin_attempt(managers)
    first = managers.claim(table, "X", token)
    managers.restart()
    second = managers.claim(table, "X", token)
    assert second.tiering_epoch == first.tiering_epoch + 1


def test_an_older_attempt_claims_nothing(managers: Managers) -> None:  # L22
    table = managers.add_table(1)
    old, new = begin_attempt(managers), begin_attempt(managers)
    with refused(ErrorCode.STALE_ATTEMPT):
        managers.claim(table, "X", old)
    assert managers.state(table) is TieringState.SCHEDULED
    managers.claim(table, "X", new)


@pytest.mark.parametrize("lease_id", ["X", "new"])
def test_a_token_that_was_never_given_out_claims_nothing(managers: Managers, lease_id: str) -> None:  # L22
    table = managers.add_table(1)
    made_up = begin_attempt(managers) + 1
    managers.restart()
    with refused(ErrorCode.INVALID_REQUEST, f"attempt token {made_up} was never given out by this server"):
        managers.claim(table, lease_id, made_up)
    assert managers.state(table) is TieringState.SCHEDULED
    token = begin_attempt(managers, lease_id)
    assert token > made_up, "tokens that a lost database may have given out are skipped"  # D12
    managers.claim(table, lease_id, token)


def test_a_claim_without_a_token_is_of_the_newest_attempt(managers: Managers) -> None:
    table = managers.add_table(1)
    token = begin_attempt(managers)
    managers.claim(table, "X")
    (tiering_round,) = managers.rounds(table.path, None, 1)
    assert tiering_round.attempt_token == token
    assert managers.lease_outcome("X", token).rounds == (tiering_round,)


def test_refused_claims_do_not_touch_the_others(managers: Managers) -> None:  # S5
    good, busy = managers.add_table(1), managers.add_table(2)
    managers.claim(busy, "other")
    unknown = TablePath("db", "unknown")
    claims = managers.tiering.claim([busy.path, unknown, good.path], RoundOwner("X", None, "d"))
    being_tiered, not_tiered, claimed = claims
    assert isinstance(being_tiered, FlussTieringError)
    assert being_tiered.code is ErrorCode.TABLE_BEING_TIERED
    assert isinstance(not_tiered, FlussTieringError)
    assert not_tiered.code is ErrorCode.INVALID_TIERING_STATE
    assert "table.datalake.enabled=true" in not_tiered.message
    assert isinstance(claimed, Claim)
    assert managers.state(good) is TieringState.TIERING


def test_cancel_fails_the_rounds_and_tells_the_waiters(managers: Managers) -> None:  # S25, S10
    table, other = managers.add_table(1), managers.add_table(2)
    token = begin_attempt(managers)
    claim = managers.claim(table, "X", token)
    managers.claim(other, "Y")
    managers.clock.advance(1000)
    cancelled = managers.tiering.cancel("X", token, "the task was killed, password=hunter2")
    assert cancelled is not None
    assert [each.path for each in cancelled] == [table.path]
    managers.restart()
    outcome = managers.lease_outcome("X", token)
    assert outcome.cancelled_reason == "the task was killed, password=***"
    assert [(each.state, each.error) for each in outcome.rounds] == [(TieringState.FAILED, outcome.cancelled_reason)]
    assert [each.end_time for each in outcome.rounds] == [managers.clock.now_ms()]
    status = managers.status(table)
    assert (status.last_error, status.last_error_time) == (outcome.cancelled_reason, managers.clock.now_ms())
    assert managers.state(other) is TieringState.TIERING
    assert managers.beat(claim).tiering_errors[1].code is ErrorCode.INVALID_TIERING_STATE


def test_a_cancelled_attempt_claims_nothing_more(managers: Managers) -> None:  # L22
    table = managers.add_table(1)
    token = begin_attempt(managers)
    managers.tiering.cancel("X", token, "stop")
    for _ in range(2):
        for claimed_with in (token, None):
            with refused(ErrorCode.STALE_ATTEMPT):
                managers.claim(table, "X", claimed_with)
        managers.restart()
    assert managers.tiering.cancel("never acquired", None, "stop") == []
    managers.claim(table, "X", begin_attempt(managers))
    assert managers.lease_outcome("X", None).cancelled_reason is None


def test_cancel_by_an_older_attempt_does_nothing(managers: Managers) -> None:  # L22
    table = managers.add_table(1)
    old, new = begin_attempt(managers), begin_attempt(managers)
    managers.claim(table, "X", new)
    assert managers.tiering.cancel("X", old, "late on_kill") is None
    assert managers.state(table) is TieringState.TIERING
    assert managers.lease_outcome("X", new).cancelled_reason is None
    assert managers.tiering.cancel("X", None, "by hand"), "without a token it is whoever runs"


def test_an_outcome_leaves_out_older_attempts(managers: Managers) -> None:  # S25
    table = managers.add_table(1)
    old = begin_attempt(managers)
    managers.fail(managers.claim(table, "X", old))
    new = begin_attempt(managers)
    assert managers.lease_outcome("X", new).rounds == ()
    assert len(managers.lease_outcome("X", old).rounds) == 1
    assert managers.lease_outcome("X", old).newest_attempt_token == new


def test_a_stale_attempt_is_handed_nothing_out(managers: Managers) -> None:  # L22
    table = managers.add_table(1, freshness="0s")
    old, _ = begin_attempt(managers), begin_attempt(managers)
    with refused(ErrorCode.STALE_ATTEMPT):
        managers.tiering.heartbeat(Heartbeat(requester=RoundOwner("X", old, "d")))
    assert managers.state(table) is TieringState.PENDING


YEAR_2027 = 1_798_761_600_000


def report(managers: Managers, claim: Claim, kind: str) -> HeartbeatAnswer:
    entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, coordinator_epoch=claim.coordinator_epoch)
    return managers.tiering.heartbeat(Heartbeat(**{kind: (entry,)}))


def errors(answer: HeartbeatAnswer) -> list[ErrorCode]:
    answers = (answer.tiering_errors, answer.finished_errors, answer.failed_errors)
    return [error.code for each in answers for error in each.values()]


def test_they_grow_and_follow_the_time() -> None:  # D12
    assert next_coordinator_epoch(0, 0) == 1
    assert next_coordinator_epoch(7, 0) == 8
    now = next_coordinator_epoch(7, YEAR_2027)
    assert now == 2 * 365 * 24 * 3600
    assert next_coordinator_epoch(now, YEAR_2027) == now + 1, "two servers in one second"
    assert next_coordinator_epoch(7, YEAR_2027 + 1000) == now + 1, "the database was restored from a backup"
    assert next_coordinator_epoch(now, YEAR_2027 * 1000) == now + 1, "the clock is wrong by far"


def test_each_active_server_has_its_own(managers: Managers) -> None:  # D12
    managers.add_table(1)
    first = managers.tiering.heartbeat(Heartbeat()).coordinator_epoch
    managers.restart()
    second = managers.tiering.heartbeat(Heartbeat()).coordinator_epoch
    assert (second, managers.store.coordinator_epoch()) == (first + 1, first + 1)


@pytest.mark.parametrize("kind", ["tiering", "finished", "failed"])
@pytest.mark.parametrize("named", ["that of the round", "the present one", "none"])
def test_a_change_of_the_server_ends_no_round(managers: Managers, kind: str, named: str) -> None:  # D12
    claim = managers.claim(managers.add_table(1))
    managers.restart()
    present = managers.tiering.heartbeat(Heartbeat()).coordinator_epoch
    assert present != claim.coordinator_epoch
    epoch = {"that of the round": claim.coordinator_epoch, "the present one": present, "none": 0}[named]
    entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, coordinator_epoch=epoch)
    assert errors(managers.tiering.heartbeat(Heartbeat(**{kind: (entry,)}))) == []


@pytest.mark.parametrize("kind", ["tiering", "finished", "failed"])
@pytest.mark.parametrize("successor", ["runs", "has ended"])
def test_an_epoch_that_was_given_out_twice_is_fenced(managers: Managers, kind: str, successor: str) -> None:
    """The database lost a claim, as after a restore from a backup: the same tiering epoch is given out again."""
    # S5, Fluss #3921, D12
    table = managers.add_table(1)
    managers.clock.advance(3 * MINUTE)
    managers.tiering.move_due_tables()
    backup = managers.store.statuses()
    lost = managers.claim(table)
    restore(managers, backup)
    again = managers.claim(table)
    assert again.tiering_epoch == lost.tiering_epoch
    if successor == "has ended":
        assert errors(report(managers, again, "finished")) == []
    assert errors(report(managers, lost, kind)) == [ErrorCode.INVALID_COORDINATOR]
    if successor == "runs":
        assert managers.state(table) is TieringState.TIERING
        assert errors(report(managers, again, "finished")) == []


def restore(managers: Managers, statuses: Sequence[TieringStatus]) -> None:
    with managers.store._database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM tiering_rounds")
    with managers.store.transaction() as transaction:
        transaction.put_statuses(statuses)
    managers.restart()


def test_a_reserved_token_is_never_given_out_again(managers: Managers) -> None:  # D6
    """Two servers, of which the first one pins snapshots at a cluster and then loses the leadership."""
    managers.acquire("X", MINUTE, {})
    reserved, _ = managers.leases.reserve("X", {})
    managers.restart()
    after, _ = managers.leases.reserve("X", {})
    assert after.attempt_token > reserved.attempt_token
    first = managers.store.attempt_token()
    with managers.store.transaction() as transaction:
        transaction.put_attempt_token(first - 1)  # the database lost the last reservation
    managers.restart()
    assert managers.leases.reserve("X", {})[0].attempt_token > first
