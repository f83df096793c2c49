"""What rounds mean for who waits for them."""

from __future__ import annotations

import pytest

from airflow_provider_fluss.outcome import Verdict, judge
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseOutcome, TieringRound, TieringState, TieringStats

TABLES = ("db.a", "db.b")


def round_of(table: str, state: TieringState, error: str | None = None) -> TieringRound:
    stats = TieringStats(10, 100, 1, 5) if state is TieringState.TIERED else None
    return TieringRound(1, TablePath.parse(table), 3, state, "lease", 7, "driver", 0, error=error, stats=stats)


TIERED_A = round_of("db.a", TieringState.TIERED)
TIERED_B = round_of("db.b", TieringState.TIERED)
TIERING_B = round_of("db.b", TieringState.TIERING)
FAILED_A = round_of("db.a", TieringState.FAILED, "disk full")


@pytest.mark.parametrize(
    ("rounds", "cancelled", "newest", "submit_ended", "verdict"),
    [
        ((), None, 7, None, Verdict.WAITING),
        ((TIERED_A,), None, 7, None, Verdict.WAITING),
        ((TIERED_A, TIERING_B), None, 7, None, Verdict.WAITING),
        # One bad table does not hide how the others end.
        ((FAILED_A, TIERING_B), None, 7, None, Verdict.WAITING),
        ((FAILED_A, TIERED_B), None, 7, None, Verdict.FAILED),
        ((TIERED_A, TIERED_B), None, 7, None, Verdict.TIERED),
        ((TIERED_A, TIERED_B), "killed", 7, None, Verdict.TIERED),
        ((TIERED_A, TIERED_B), None, 8, None, Verdict.TIERED),
        ((TIERED_A, TIERING_B), "killed", 7, None, Verdict.CANCELLED),
        ((), "killed", 7, None, Verdict.CANCELLED),
        ((TIERED_A,), None, 8, None, Verdict.SUPERSEDED),
        ((TIERED_A,), "killed", 8, None, Verdict.SUPERSEDED),
        # A lease that was dropped has no attempt any more; its rounds' outcomes remain.
        ((TIERED_A,), None, None, None, Verdict.WAITING),
        ((TIERED_A,), None, 7, "failed", Verdict.NOT_SUBMITTED),
        # A claimed round ends by itself: its application may have outlived the task.
        ((TIERED_A, TIERING_B), None, 7, "failed", Verdict.WAITING),
        ((FAILED_A, TIERED_B), None, 7, "failed", Verdict.FAILED),
    ],
)
def test_verdict(rounds, cancelled, newest, submit_ended, verdict):  # S25
    assert judge(LeaseOutcome(rounds, cancelled, newest), TABLES, 7, submit_ended).verdict is verdict


def test_a_failure_names_each_failed_table_with_its_error_and_no_other():  # S10
    failed = judge(LeaseOutcome((FAILED_A, TIERED_B), None, 7), TABLES, 7)
    assert failed.message == "1 of 2 tables failed to be tiered:\n- db.a (epoch 3): disk full"


def test_a_cancellation_says_why_and_names_what_failed():
    cancelled = judge(LeaseOutcome((FAILED_A, TIERING_B), "task submit was killed", 7), TABLES, 7)
    assert "task submit was killed" in cancelled.message
    assert "- db.a (epoch 3): disk full" in cancelled.message


def test_waiting_says_what_for():
    waiting = judge(LeaseOutcome((TIERING_B,), None, 7), TABLES, 7)
    assert waiting.message == "0 of 2 done; Tiering: db.b (epoch 3); not yet claimed: db.a"
    assert waiting.unclaimed == ("db.a",)


def test_a_submit_that_ended_is_named_with_what_it_left():
    ended = judge(LeaseOutcome((TIERED_A,), None, 7), TABLES, 7, "upstream_failed")
    assert "(upstream_failed)" in ended.message
    assert "never claimed: db.b" in ended.message


def test_success_tells_what_each_round_wrote():
    tiered = judge(LeaseOutcome((TIERED_A, TIERED_B), None, 7), TABLES, 7)
    assert tiered.to_event()["rounds"][0] == {
        "table": "db.a",
        "tiering_epoch": 3,
        "status": "Tiered",
        "error": None,
        "rows": 10,
        "bytes": 100,
        "files": 1,
        "lake_snapshot_id": 5,
    }


def test_rounds_of_other_tables_do_not_count():
    other = round_of("db.c", TieringState.FAILED, "not ours")
    assert judge(LeaseOutcome((other, TIERED_A, TIERED_B), None, 7), TABLES, 7).verdict is Verdict.TIERED
