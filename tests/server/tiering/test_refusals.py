"""What drivers and people are told when a call on a table is refused, and what a refusal leaves behind."""

from __future__ import annotations

from manager_support import Managers

from engine_support import MINUTE, VirtualClock, refusal
from fluss_tiering.model.clock import iso_time
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.server.core.tiering.broadcaster import StatusWatcher
from fluss_tiering.server.core.tiering.states import MAX_CONSECUTIVE_FAILURES, RoundOwner

# Claims


def test_who_holds_a_table_is_told_with_its_last_heartbeat(managers: Managers, clock: VirtualClock) -> None:  # S22
    table = managers.add_table(1)
    claim = managers.claim(table, "mine", managers.acquire("mine", MINUTE, {}).attempt_token)
    clock.advance(61_000)
    managers.beat(claim)
    message = refusal(lambda: managers.claim(table, "yours")).message
    assert message.startswith(f"table {table.path} is being tiered: epoch {claim.tiering_epoch}, lease mine, ")
    assert f"driver driver-1, last heartbeat {iso_time(clock.now_ms())}" in message
    assert not managers.finish(claim).finished_errors


def test_a_driver_without_a_lease_or_a_name_is_told_as_such(managers: Managers) -> None:  # S22
    table = managers.add_table(1, freshness="0s")
    assert managers.request(driver="") is not None
    message = refusal(lambda: managers.claim(table, "yours")).message
    assert "lease none, driver unknown, " in message


def test_a_parked_table_tells_the_first_line_of_its_last_error_and_what_to_do(managers: Managers) -> None:  # S15, S19
    told = {"\n disk full \nat line 2": "disk full", " ": "no reason was given", None: "no reason was given"}
    for table_id, (error, line) in enumerate(told.items()):
        table = managers.add_table(table_id)
        for _ in range(MAX_CONSECUTIVE_FAILURES):
            managers.fail(managers.claim(table), error)
        before = managers.status(table)
        refused = refusal(lambda parked=table: managers.claim(parked))
        assert refused.code is ErrorCode.TABLE_PARKED
        start = f"table {table.path} is parked after 10 failures in a row, the last one: {line}"
        assert refused.message.startswith(start)
        assert "at line 2" not in refused.message
        assert f"fluss-tiering resume {table.path}" in refused.message
        assert managers.status(table) == before


def test_tables_that_are_not_tiered_are_named(managers: Managers) -> None:  # S16
    unknown = TablePath("db", "unknown")
    (resumed,) = managers.tiering.resume([unknown])
    (claimed,) = managers.tiering.claim([unknown], RoundOwner("X", None, "d"))
    watched = refusal(lambda: managers.tiering.watch(StatusWatcher([unknown], lambda: None), [unknown]))
    for refused in (resumed, claimed, watched, refusal(lambda: managers.tiering.statuses(unknown))):
        assert isinstance(refused, FlussTieringError)
        assert refused.message.startswith("table db.unknown is not tiered: ")


# Rounds


def test_a_call_of_a_round_is_let_through_as_long_as_the_round_runs(managers: Managers) -> None:  # S5, S6
    table = managers.add_table(1, freshness="1h")
    claim = managers.claim(table)
    managers.tiering.require_round(1, claim.tiering_epoch)
    stale = refusal(lambda: managers.tiering.require_round(1, claim.tiering_epoch - 1))
    unknown = refusal(lambda: managers.tiering.require_round(7, claim.tiering_epoch))
    managers.fail(claim, "disk full")
    ended = refusal(lambda: managers.tiering.require_round(1, claim.tiering_epoch))
    assert stale.code is ErrorCode.FENCED_TIERING_EPOCH
    assert f"tiering epoch 0 of table {table.path} is not its present one, 1: " in stale.message
    assert unknown.code is ErrorCode.TABLE_NOT_EXIST
    assert "table 7 does not exist" in unknown.message
    assert ended.code is ErrorCode.INVALID_TIERING_STATE
    assert f"table {table.path} is not Tiering but Failed (disk full): the round of epoch 1 has" in ended.message
    again = managers.claim(table)
    managers.finish(again)
    finished = refusal(lambda: managers.tiering.require_round(1, again.tiering_epoch))
    assert f"table {table.path} is not Tiering but Scheduled: the round" in finished.message


# S10, S11
def test_a_refused_commit_is_the_last_error_of_a_round_that_goes_on(managers: Managers, clock: VirtualClock) -> None:
    table = managers.add_table(1)
    claim = managers.claim(table)
    clock.advance(MINUTE)
    managers.tiering.note_refused_commit(1, claim.tiering_epoch, "password=hunter2 " + "x" * 10_000)
    for _ in range(2):
        status = managers.status(table)
        assert status.last_error is not None
        assert status.last_error.startswith("password=*** x")
        assert len(status.last_error) == 4096
        assert (status.last_error_time, status.state) == (clock.now_ms(), TieringState.TIERING)
        assert status.consecutive_failures == 0
        assert not managers.beat(claim).tiering_errors
        managers.restart()
    fenced = refusal(lambda: managers.tiering.note_refused_commit(1, claim.tiering_epoch + 1, "late"))
    assert fenced.code is ErrorCode.FENCED_TIERING_EPOCH
    assert "table 7 does not exist" in refusal(lambda: managers.tiering.note_refused_commit(7, 1, "late")).message
    assert managers.status(table) == status
    managers.finish(claim)
    assert managers.status(table).last_error is None


# Tables


def test_a_coordinator_makes_a_table_due_before_its_time(managers: Managers) -> None:  # S2, S3
    table = managers.add_table(1, freshness="1h")
    before = managers.status(table)
    assert managers.tiering.make_due(1) is TieringState.PENDING
    for _ in range(2):
        status = managers.status(table)
        assert (status.state, status.tiering_epoch) == (TieringState.PENDING, before.tiering_epoch + 1)
        assert status.state_since == managers.clock.now_ms()
        assert managers.tiering.make_due(1) is TieringState.PENDING, "again, and nothing happens"
        managers.restart()
    claim = managers.request()
    assert claim is not None
    assert managers.tiering.make_due(1) is TieringState.TIERING
    assert managers.tiering.make_due(99) is None
    assert not managers.beat(claim).tiering_errors


def test_the_round_of_a_table_that_cannot_be_used_times_out_all_the_same(  # S4, D2
    managers: Managers, clock: VirtualClock
) -> None:
    table = managers.add_table(1)
    claim = managers.claim(table)
    managers.make_unusable(1)
    clock.advance(2 * MINUTE - 1)
    managers.tiering.end_overdue_rounds()
    assert managers.status(table).state is TieringState.TIERING
    clock.advance(1)
    managers.tiering.end_overdue_rounds()
    assert managers.status(table).state is TieringState.FAILED
    assert managers.beat(claim).tiering_errors[1].code is ErrorCode.INVALID_TIERING_STATE


def test_a_table_that_cannot_be_used_becomes_due_by_the_default_freshness(  # S2, D2
    managers: Managers, clock: VirtualClock
) -> None:
    table = managers.add_table(1, freshness="30min")
    managers.finish(managers.claim(table))
    managers.make_unusable(1)
    clock.advance(3 * MINUTE - 1)
    managers.tiering.move_due_tables()
    assert managers.status(table).state is TieringState.SCHEDULED
    clock.advance(1)
    managers.tiering.move_due_tables()
    assert managers.status(table).state is TieringState.PENDING
