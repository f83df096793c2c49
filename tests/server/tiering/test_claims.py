"""Claims by name, attempts and their cancelling: seeds S5, S22, S25, L17, L22."""

from __future__ import annotations

import pytest
from manager_support import Managers

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, TieringState
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat
from fluss_tiering.server.core.tiering.states import RoundOwner


def begin_attempt(managers: Managers, lease_id: str = "X") -> int:
    return managers.acquire(lease_id, 1000, {}).attempt_token


@pytest.mark.parametrize("state", ["Scheduled", "Pending", "Failed"])
def test_a_claim_by_name_does_not_wait(managers: Managers, state: str) -> None:
    table = managers.add_table(1, freshness="0s" if state == "Pending" else "1h")
    if state == "Failed":
        managers.fail(managers.claim(table))
    before = managers.status(table)
    assert before.state.value == state
    claim = managers.claim(table)
    assert claim.tiering_epoch == before.tiering_epoch + (state != "Pending")
    assert managers.state(table) is TieringState.TIERING


def test_a_newer_attempt_takes_the_round_over(managers: Managers) -> None:  # S5, L17
    table = managers.add_table(1)
    old = managers.claim(table, "X", begin_attempt(managers))
    token = begin_attempt(managers)
    new = managers.claim(table, "X", token)
    assert new.tiering_epoch == old.tiering_epoch + 1
    assert managers.finish(old).finished_errors[1].code is ErrorCode.FENCED_TIERING_EPOCH
    newest, superseded = managers.rounds(table.path, None, 10)
    assert newest.state is TieringState.TIERING
    assert superseded.state is TieringState.FAILED
    assert superseded.error is not None
    assert superseded.error.startswith(f"superseded by driver driver-1, attempt {token} of the same lease")


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
    with pytest.raises(FlussTieringError) as refused:
        managers.claim(table, "X", old)
    assert refused.value.code is ErrorCode.STALE_ATTEMPT
    assert managers.state(table) is TieringState.SCHEDULED
    managers.claim(table, "X", new)


@pytest.mark.parametrize("lease_id", ["X", "new"])
def test_a_token_that_was_never_given_out_claims_nothing(managers: Managers, lease_id: str) -> None:  # L22
    table = managers.add_table(1)
    made_up = begin_attempt(managers) + 1
    managers.restart()
    with pytest.raises(FlussTieringError) as refused:
        managers.claim(table, lease_id, made_up)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert f"attempt token {made_up} was never given out by this server" in refused.value.message
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
            with pytest.raises(FlussTieringError) as refused:
                managers.claim(table, "X", claimed_with)
            assert refused.value.code is ErrorCode.STALE_ATTEMPT
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
    with pytest.raises(FlussTieringError) as refused:
        managers.tiering.heartbeat(Heartbeat(requester=RoundOwner("X", old, "d")))
    assert refused.value.code is ErrorCode.STALE_ATTEMPT
    assert managers.state(table) is TieringState.PENDING
