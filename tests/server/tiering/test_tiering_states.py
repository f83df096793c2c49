"""When a table is due, and which transitions there are: seeds S1-S3, S14, S18, S20."""

from __future__ import annotations

from itertools import product

import pytest
import structlog
from manager_support import BACKOFF_BASE, Managers

from cases import cases
from engine_support import MINUTE, VirtualClock, table_info
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import TRANSITIONS, TieringState, TieringStatus
from fluss_tiering.server.core.tiering.states import TieredTable, move

LEGAL = {
    ("New", "Scheduled"),
    ("Initialized", "Scheduled"),
    ("Tiered", "Scheduled"),
    ("Scheduled", "Pending"),
    ("Failed", "Pending"),
    ("Tiered", "Pending"),
    ("Pending", "Tiering"),
    ("Tiering", "Tiered"),
    ("Tiering", "Failed"),
}


@cases(("source", "target"), list(product(TieringState, TieringState)))
def test_only_these_transitions(source: TieringState, target: TieringState) -> None:  # S1
    info = table_info(1)
    table = TieredTable(TieringStatus(1, info.path, source, 0, 3), freshness_ms=MINUTE, created_time=0)
    if (source.value, target.value) in LEGAL:
        assert move(table, target, 5).status.state is target
        return
    with structlog.testing.capture_logs() as logs, pytest.raises(FlussTieringError) as refused:
        move(table, target, 5)
    assert refused.value.code is ErrorCode.INVALID_TIERING_STATE
    assert source.value in refused.value.message
    assert target.value in refused.value.message
    assert (logs[0]["from_state"], logs[0]["to_state"]) == (source.value, target.value)


def test_tables_begin_as_new_or_initialized() -> None:  # S1
    assert TRANSITIONS[None] == {TieringState.NEW, TieringState.INITIALIZED}


def test_a_new_table_is_pending_after_its_freshness(managers: Managers, clock: VirtualClock) -> None:  # S2, S3, S14
    table = managers.add_table(1, freshness=None)
    status = managers.status(table)
    assert (status.state, status.tiering_epoch, status.last_tiered_time) == (TieringState.SCHEDULED, 0, None)
    clock.advance(3 * MINUTE - 1)
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.SCHEDULED
    clock.advance(1)
    managers.tiering.move_due_tables()
    status = managers.status(table)
    assert (status.state, status.tiering_epoch, status.last_tiered_time) == (TieringState.PENDING, 1, None)


def test_freshness_counts_from_the_last_success(managers: Managers, clock: VirtualClock) -> None:  # S2
    table = managers.add_table(1, freshness="30s")
    clock.advance(20_000)
    managers.finish(managers.claim(table))
    assert managers.status(table).last_tiered_time == clock.now_ms()
    clock.advance(29_999)
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.SCHEDULED
    clock.advance(1)
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.PENDING


def test_no_freshness_is_due_at_once(managers: Managers) -> None:  # S2
    table = managers.add_table(1, freshness="0s")
    assert managers.state(table) is TieringState.PENDING
    managers.finish(managers.claim(table))
    assert managers.state(table) is TieringState.PENDING


def test_epochs_grow_with_each_entry_to_pending_and_never_go_back(managers: Managers) -> None:  # S3
    table = managers.add_table(1, freshness="0s")
    epochs = [managers.status(table).tiering_epoch]
    for _ in range(3):
        claim = managers.claim(table)
        managers.finish(claim)
        managers.restart()
        epochs.append(managers.status(table).tiering_epoch)
    assert epochs == [1, 2, 3, 4]


def test_a_failed_table_rests_before_it_is_pending_again(managers: Managers, clock: VirtualClock) -> None:  # S18
    table = managers.add_table(1, freshness="0s")
    managers.fail(managers.claim(table))
    status = managers.status(table)
    assert (status.state, status.consecutive_failures) == (TieringState.FAILED, 1)
    assert status.next_retry_time is not None
    rest = status.next_retry_time - clock.now_ms()
    assert BACKOFF_BASE / 2 <= rest <= BACKOFF_BASE
    clock.advance(rest - 1)
    managers.restart()
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.FAILED
    clock.advance(1)
    managers.tiering.move_due_tables()
    status = managers.status(table)
    assert (status.state, status.tiering_epoch, status.next_retry_time) == (TieringState.PENDING, 2, None)


def test_a_dropped_table_leaves_nothing(managers: Managers) -> None:  # S12, S20
    table, other = managers.add_table(1), managers.add_table(2)
    managers.fail(managers.claim(table))
    managers.drop_table(1)
    managers.restart()
    assert [status.path for status in managers.tiering.statuses()] == [other.path]
    assert managers.rounds(table.path, None, 10) == []
    again = managers.add_table(3, name="t1")
    assert (managers.status(again).tiering_epoch, managers.status(again).last_error) == (0, None)


def test_a_restart_reconciles_with_the_storage(managers: Managers) -> None:  # S2, S24
    kept = managers.add_table(1)
    managers.add_table(2)
    managers.finish(managers.claim(kept))
    before = managers.status(kept)
    del managers.tables[2]
    created_as_the_server_died = table_info(3, created_time=managers.clock.now_ms())
    managers.tables[3] = created_as_the_server_died
    managers.tables[4] = table_info(4, tiered=False)
    created_long_ago = table_info(5, created_time=managers.clock.now_ms() - 3 * MINUTE)
    managers.tables[5] = created_long_ago
    managers.restart()
    assert managers.status(kept) == before
    assert [status.table_id for status in managers.tiering.statuses()] == [1, 3, 5]
    assert managers.state(created_as_the_server_died) is TieringState.SCHEDULED
    assert managers.state(created_long_ago) is TieringState.PENDING
