"""What rounds and maintenance leave in totals and in the log, and which epochs and options are accepted."""

from __future__ import annotations

from manager_support import Managers
from refusals import refused
from structlog.testing import capture_logs

from cases import cases
from engine_support import VirtualClock
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStats
from fluss_tiering.server.core.tiering.changes import _log_round
from fluss_tiering.server.core.tiering.fence import require_coordinator
from fluss_tiering.server.core.tiering.policy import LakeOptions
from fluss_tiering.server.core.tiering.totals import RoundTotals, TableTotals
from fluss_tiering.wire.tiering import status_to_pb


def round_of(state: TieringState, stats: TieringStats | None = None, **more: object) -> TieringRound:
    known = {"attempt_token": 3, "driver": "d", "start_time": 1000, "end_time": 1250, "coordinator_epoch": 40}
    return TieringRound(7, TablePath("db", "t"), 5, state, "L", stats=stats, **{**known, **more})  # type: ignore[arg-type]


def test_totals_add_up_and_keep_the_size_that_was_told_last() -> None:
    totals = RoundTotals()
    assert totals.of(7) == TableTotals()
    totals.count(round_of(TieringState.TIERING, end_time=None))
    assert totals.of(7) == TableTotals()
    totals.count(round_of(TieringState.TIERED, TieringStats(10, 100, lake_file_size=5000, lake_record_count=60)))
    assert totals.of(7) == TableTotals(0, 250, 5000, 60, 10, 100)
    totals.count(round_of(TieringState.TIERED, TieringStats(), start_time=1150))
    assert totals.of(7) == TableTotals(0, 100, 5000, 60, 10, 100), "an empty round tells no size"
    totals.count(round_of(TieringState.TIERED, TieringStats(1, 2, lake_file_size=4000, lake_record_count=50)))
    assert totals.of(7) == TableTotals(0, 250, 4000, 50, 11, 102)
    totals.count(round_of(TieringState.FAILED))
    totals.count(round_of(TieringState.TIERED))
    assert totals.of(7) == TableTotals(1, 250, 4000, 50, 11, 102)
    assert totals.of(8) == TableTotals()
    totals.forget(7)
    assert totals.of(7) == TableTotals()


@cases(
    ("tiering_round", "expected"),
    [
        (round_of(TieringState.TIERING), {"event": "round began", "attempt_token": 3, "driver": "d"}),
        (
            round_of(TieringState.TIERED, TieringStats(10), force_finished=True),
            {"event": "round tiered", "rows": 10, "force_finished": True},
        ),
        (round_of(TieringState.TIERED), {"event": "round tiered", "rows": None, "force_finished": False}),
        (round_of(TieringState.FAILED, error="why"), {"event": "round failed", "error": "why"}),
    ],
)
def test_each_step_of_a_round_is_logged(tiering_round: TieringRound, expected: dict[str, object]) -> None:
    with capture_logs() as log:
        _log_round(tiering_round)
    level = "warning" if tiering_round.state is TieringState.FAILED else "info"
    assert log == [{"table": "db.t", "epoch": 5, "lease_id": "L", "log_level": level, **expected}]


def test_a_driver_names_the_coordinator_epoch_of_its_round_or_the_present_one_or_none() -> None:
    running = round_of(TieringState.TIERING)
    for named in (0, 40, 41):
        require_coordinator(named, running, 41)
    for named in (0, 41):
        require_coordinator(named, None, 41)
    for named, known in ((39, running), (42, running), (40, None)):
        with refused(ErrorCode.INVALID_COORDINATOR):
            require_coordinator(named, known, 41)


def test_an_option_that_is_neither_true_nor_false_is_refused() -> None:
    assert LakeOptions.of({"table.datalake.enabled": " True "}).enabled
    with refused(ErrorCode.INVALID_TABLE, "'yes': expected true or false"):
        LakeOptions.of({"table.datalake.enabled": "yes"})


def test_reports_are_counted(managers: Managers, clock: VirtualClock) -> None:
    maintained, other = managers.add_table(1), managers.add_table(2)
    managers.tiering.count_maintenance([MaintenanceReport(each, saved_files=3) for each in (maintained.table_id, 77)])
    assert managers.tiering.totals.of(maintained.table_id).saved_files == 3
    assert managers.tiering.totals.of(other.table_id).maintained_time is None
    assert managers.tiering.statuses(maintained.path)[0].last_maintained_time == clock.now_ms()
    assert managers.tiering.statuses(other.path)[0].last_maintained_time is None


def test_the_maintenance_of_a_dropped_table_is_forgotten(managers: Managers) -> None:
    table = managers.add_table(1)
    managers.tiering.count_maintenance([MaintenanceReport(table.table_id, saved_files=3)])
    managers.tiering.remove(table.table_id)
    assert managers.tiering.totals.of(table.table_id).maintained_time is None


def test_the_sum_of_reports_fits_into_an_answer(managers: Managers) -> None:
    table = managers.add_table(1)
    for _ in range(2):
        managers.tiering.count_maintenance([MaintenanceReport(table.table_id, *[2**63 - 1] * 4)])
    (status,) = managers.tiering.statuses(table.path)
    sent = status_to_pb(status)
    assert (sent.maintenance_saved_files, sent.maintenance_rewritten_bytes) == (2**63 - 1, 2**63 - 1)
    assert (sent.maintenance_expired_snapshots, sent.maintenance_deleted_files) == (2**63 - 1, 2**63 - 1)
