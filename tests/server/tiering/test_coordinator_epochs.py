"""Coordinator epochs: they grow with each active server, and tell apart rounds with the same tiering epoch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from manager_support import Managers

from engine_support import MINUTE
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, HeartbeatEntry, TieringState, TieringStatus
from fluss_tiering.server.core.tiering.fence import next_coordinator_epoch
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat

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
