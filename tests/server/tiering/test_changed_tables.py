"""Tables whose options change, that are dropped, made anew, or cannot be used for a while: S3, S12, S20, S25."""

from __future__ import annotations

from dataclasses import replace

import pytest
from manager_support import Managers

from engine_support import MINUTE, VirtualClock, table_info
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.model.tiering import Claim, TieringState, TieringStats, TieringStatus
from fluss_tiering.server.core.tiering.broadcaster import StatusWatcher

ENABLED, FRESHNESS = "table.datalake.enabled", "table.datalake.freshness"


def test_another_freshness_reschedules_while_scheduled(managers: Managers, clock: VirtualClock) -> None:  # S20
    table = managers.add_table(1, freshness="1h")
    managers.finish(managers.claim(table))
    table = managers.alter_table(table, {FRESHNESS: "10min"})
    clock.advance(10 * MINUTE - 1)
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.SCHEDULED
    clock.advance(1)
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.PENDING


def test_a_shorter_freshness_may_be_over_already(managers: Managers, clock: VirtualClock) -> None:  # S20
    table = managers.add_table(1, freshness="1h")
    clock.advance(20 * MINUTE)
    managers.alter_table(table, {FRESHNESS: "10min"})
    assert managers.state(table) is TieringState.PENDING


def test_another_freshness_leaves_other_states_alone(managers: Managers, clock: VirtualClock) -> None:  # S20
    pending, running, failed = (managers.add_table(table_id, freshness="0s") for table_id in (1, 2, 3))
    claim = managers.claim(running)
    managers.fail(managers.claim(failed))
    before = managers.tiering.statuses()
    for table in (pending, running, failed):
        managers.alter_table(table, {FRESHNESS: "1h"})
    assert managers.tiering.statuses() == before
    managers.finish(claim)
    assert managers.state(running) is TieringState.SCHEDULED, "it counts from the next success on"
    clock.advance(60 * MINUTE)
    managers.tiering.move_due_tables()
    assert managers.state(running) is TieringState.PENDING


def test_the_epoch_never_goes_back_when_tiering_is_switched_off_and_on(managers: Managers) -> None:  # S3, S20
    table = managers.add_table(1, freshness="0s")
    for _ in range(3):
        managers.finish(managers.claim(table))
    before = managers.status(table)
    for restart in (False, True):
        table = managers.alter_table(table, {ENABLED: "false"})
        assert managers.tiering.statuses() == []
        if restart:
            managers.restart()
        assert managers.tiering.statuses() == []
        table = managers.alter_table(table, {ENABLED: "true"})
        status = managers.status(table)
        assert status.tiering_epoch > before.tiering_epoch
        assert status.last_tiered_time == before.last_tiered_time
        assert (status.consecutive_failures, status.last_error) == (0, None)
        before = status


def test_the_last_success_stays_known_when_tiering_is_switched_off_and_on(
    managers: Managers, clock: VirtualClock
) -> None:  # S14, S20
    table = managers.add_table(1, freshness="1h")
    managers.finish(managers.claim(table))
    succeeded = clock.now_ms()
    for restart in (False, True):
        clock.advance(20 * MINUTE)
        table = managers.alter_table(table, {ENABLED: "false"})
        if restart:
            managers.restart()
        clock.advance(5 * MINUTE)
        table = managers.alter_table(table, {ENABLED: "true"})
        assert managers.status(table).last_tiered_time == succeeded
        if restart:
            managers.restart()
        assert managers.status(table).last_tiered_time == succeeded
    # Freshness counts from it, too.
    clock.advance(10 * MINUTE - 1)
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.SCHEDULED
    clock.advance(1)
    managers.tiering.move_due_tables()
    assert managers.state(table) is TieringState.PENDING


def test_a_table_that_was_never_tiered_can_be(managers: Managers) -> None:  # S1, S20
    table = managers.add_table(1, tiered=False)
    assert managers.tiering.statuses() == []
    table = managers.alter_table(table, {ENABLED: "true"})
    assert (managers.state(table), managers.status(table).tiering_epoch) == (TieringState.SCHEDULED, 0)


def test_switching_off_ends_the_running_round(managers: Managers, clock: VirtualClock) -> None:  # S5, S20, S23, S25
    table = managers.add_table(1)
    claim = managers.claim(table, "X")
    clock.advance(MINUTE)
    managers.alter_table(table, {ENABLED: "false"})
    assert managers.finish(claim).finished_errors[1].code is ErrorCode.TABLE_NOT_EXIST
    managers.restart()
    (outcome,) = managers.lease_outcome("X", None).rounds
    assert (outcome.state, outcome.error, outcome.end_time) == (
        TieringState.FAILED,
        "the table's tiering was switched off (table.datalake.enabled=false)",
        clock.now_ms(),
    )
    managers.alter_table(managers.tables[1], {ENABLED: "true"})
    assert managers.finish(claim).finished_errors[1].code is ErrorCode.INVALID_TIERING_STATE
    again = managers.claim(table)
    assert again.tiering_epoch > claim.tiering_epoch
    assert managers.finish(claim).finished_errors[1].code is ErrorCode.FENCED_TIERING_EPOCH


def test_a_server_killed_between_storage_and_status_takes_the_options_over(managers: Managers) -> None:  # S24, S20
    off, on = managers.add_table(1, freshness="0s"), managers.add_table(2, freshness="0s")
    claim = managers.claim(off)
    managers.alter_table(on, {ENABLED: "false"})
    epoch = managers.tiering.tables.withdrawn[2].tiering_epoch
    managers.tables[1] = table_info(1, tiered=False)
    managers.tables[2] = table_info(2, freshness="0s")
    managers.restart()
    assert [status.table_id for status in managers.tiering.statuses()] == [2]
    assert managers.status(on).tiering_epoch == epoch + 1
    assert managers.beat(claim).tiering_errors[1].code is ErrorCode.TABLE_NOT_EXIST
    (ended,) = managers.rounds(off.path, None, 1)
    assert ended.state is TieringState.FAILED
    assert "table.datalake.enabled=false" in (ended.error or "")


def test_dropping_a_table_that_is_switched_off_leaves_nothing(managers: Managers) -> None:  # S12, S20
    table = managers.add_table(1)
    managers.finish(managers.claim(table))
    managers.alter_table(table, {ENABLED: "false"})
    assert list(managers.tiering.tables.withdrawn) == [1]
    managers.drop_table(1)
    assert managers.tiering.tables.withdrawn == {}
    assert managers.store.statuses() == []
    assert managers.rounds(table.path, None, 10) == []


STATS = TieringStats(rows=3, bytes=40, files=1, lake_snapshot_id=7)


@pytest.mark.parametrize("restart", [False, True])
def test_a_path_belongs_to_the_newest_table(managers: Managers, restart: bool) -> None:  # D13
    old = managers.add_table(1, name="t", freshness="0s")
    managers.finish(managers.claim(old))
    # Others dropped the table and made it anew: the newer one may be seen first.
    new = managers.add_table(2, name="t", freshness="0s")
    watcher = StatusWatcher([new.path], lambda: None)
    managers.tiering.watch(watcher, [new.path])
    watcher.take()
    managers.drop_table(1)
    if restart:
        managers.restart()
    else:
        news = watcher.take()
        assert news.removed == (), "the path still has a table"
        assert [each.table_id for each in news.statuses] == [2]
    assert [each.table_id for each in managers.tiering.statuses()] == [2]
    assert managers.status(new).table_id == 2
    assert managers.claim(new).table_id == 2
    assert {each.table_id for each in managers.rounds(new.path, None, 10)} == {2}


def watched(managers: Managers) -> tuple[TieringStatus, ...]:
    watcher = StatusWatcher((), lambda: None)
    managers.tiering.watch(watcher, ())
    return watcher.take().statuses


# D11, S25
def test_a_dropped_table_whose_end_cannot_be_recorded_is_withheld_and_recorded_once_later(managers: Managers) -> None:
    running = managers.add_table(1, freshness="0s")
    managers.add_table(2, freshness="0s")
    claim = managers.claim(running, "X")
    for table_id in (1, 2):
        with managers.failing_disk(), pytest.raises(FlussTieringError):
            managers.tiering.remove(table_id)
        managers.tiering.withhold(table_id)
    assert managers.tiering.statuses() == []
    assert watched(managers) == ()
    assert managers.request() is None
    assert managers.beat(claim).tiering_errors[1].code is ErrorCode.TABLE_NOT_EXIST
    with pytest.raises(FlussTieringError):
        managers.claim(running)
    recorded = managers.clock.now_ms()
    for _ in range(2):
        for table_id in (1, 2):
            managers.tiering.remove(table_id)
        assert managers.store.statuses() == []
        (outcome,) = managers.lease_outcome("X", None).rounds
        assert (outcome.error, outcome.end_time) == ("the table was dropped", recorded)
        managers.clock.advance(MINUTE)


# Tables that cannot be used


def prepared(managers: Managers, table: TableInfo, state: str) -> Claim | None:
    """The table in a state, with some history; the claim of its round if that runs."""
    managers.finish(managers.claim(table), STATS)
    if state == "switched off":
        managers.alter_table(table, {ENABLED: "false"})
    elif state == "parked":
        for _ in range(10):
            managers.fail(managers.claim(table), "cannot be read")
    elif state == "failed":
        managers.fail(managers.claim(table), "cannot be read")
    elif state == "running":
        return managers.claim(table, "X")
    return None


@pytest.mark.parametrize("state", ["scheduled", "running", "failed", "parked", "switched off"])
def test_a_table_that_cannot_be_used_for_a_while_loses_nothing(managers: Managers, state: str) -> None:  # D2, S3
    table = managers.add_table(1, freshness="1h")
    other = managers.add_table(2)
    claim = prepared(managers, table, state)
    table = managers.tables[1]
    stored = {each.table_id: each for each in managers.store.statuses()}
    history = managers.rounds(table.path, None, 10)
    for _ in range(2):
        managers.make_unusable(1)
        assert {each.table_id: each for each in managers.store.statuses()} == stored
        assert managers.rounds(table.path, None, 10) == history
        assert managers.status(other) == stored[2]
        if state == "switched off":
            assert [each.table_id for each in managers.tiering.statuses()] == [2]
        else:
            assert managers.status(table) == stored[1]
    if claim is not None:
        assert not managers.beat(claim).tiering_errors, "its round goes on"
    managers.make_usable(table)
    if state == "switched off":
        managers.alter_table(table, {ENABLED: "true"})
    assert managers.status(table).tiering_epoch >= stored[1].tiering_epoch
    assert managers.tiering.tables.all()[-1].created_time == table.created_time
    if claim is not None:
        assert not managers.finish(claim).finished_errors
    assert managers.claim(table, "Z").tiering_epoch > stored[1].tiering_epoch


def test_a_table_that_is_repaired_has_its_options_again(managers: Managers) -> None:  # D2, S20
    on, off = managers.add_table(1, freshness="1h"), managers.add_table(2, freshness="1h")
    for table in (on, off):
        managers.finish(managers.claim(table))
    managers.make_unusable(1, 2)
    properties = {**off.descriptor.properties, ENABLED: "false"}
    managers.make_usable(replace(off, descriptor=replace(off.descriptor, properties=properties)))
    managers.make_usable(on)
    (tiered,) = managers.tiering.tables.all()
    assert (tiered.status.table_id, tiered.freshness_ms) == (1, 3_600_000)


def test_a_table_that_was_dropped_while_it_could_not_be_used_is_forgotten(managers: Managers) -> None:  # D2
    table = managers.add_table(1)
    managers.finish(managers.claim(table, "X"))
    managers.make_unusable(1)
    managers.unusable.clear()
    managers.restart()
    assert managers.tiering.statuses() == []
    assert managers.store.statuses() == []
    assert managers.lease_outcome("X", None).rounds


@pytest.mark.parametrize("unusable", [True, False])
def test_leases_of_a_table_that_cannot_be_used_stay(managers: Managers, unusable: bool) -> None:  # D2
    managers.add_table(1)
    managers.acquire("X", 3_600_000, {TableBucket(1, 0): 4})
    if unusable:
        managers.make_unusable(1)
    else:
        del managers.tables[1]
        managers.restart()
    loaded = managers.loaded_as_by_a_server()
    assert [lease.lease_id for lease in loaded.leases.leases()] == (["X"] if unusable else [])
