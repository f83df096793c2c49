"""Tables whose options change while they are tiered: seeds S3, S20."""

from __future__ import annotations

from manager_support import Managers

from engine_support import MINUTE, VirtualClock, table_info
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.tiering import TieringState

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
