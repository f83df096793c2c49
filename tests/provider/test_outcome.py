"""What rounds mean for who waits for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_fluss.outcome import Verdict, judge
from airflow_provider_fluss.submit_task import HAS_SUBMITTED, MAY_SUBMIT, SubmitState
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseOutcome, TieringRound, TieringState, TieringStats

TABLES = ("db.a", "db.b")


def round_of(table: str, state: TieringState, error: str | None = None, attempt: int = 7) -> TieringRound:
    stats = TieringStats(10, 100, 1, 5) if state is TieringState.TIERED else None
    return TieringRound(1, TablePath.parse(table), 3, state, "lease", attempt, "driver", 0, error=error, stats=stats)


TIERED_A = round_of("db.a", TieringState.TIERED)
TIERED_B = round_of("db.b", TieringState.TIERED)
TIERING_B = round_of("db.b", TieringState.TIERING)
FAILED_A = round_of("db.a", TieringState.FAILED, "disk full")
INTERRUPTED_B = replace(round_of("db.b", TieringState.FAILED, "the JVM was killed"), interrupted=True)
FAILED_B = round_of("db.b", TieringState.FAILED, "disk slow")
UP_FOR_RETRY = SubmitState("is up_for_retry", ended=False, claims_over=False)
FAILED = SubmitState("failed", ended=True, claims_over=True)


@pytest.mark.parametrize(
    ("rounds", "cancelled", "newest", "submit", "verdict"),
    [
        ((), None, 7, None, Verdict.WAITING),
        ((TIERED_A,), None, 7, None, Verdict.WAITING),
        ((TIERED_A, TIERING_B), None, 7, None, Verdict.WAITING),
        # One bad table does not hide how the others end.
        ((FAILED_A, TIERING_B), None, 7, None, Verdict.WAITING),
        ((FAILED_A, TIERED_B), None, 7, None, Verdict.FAILED),
        ((TIERED_A, TIERED_B), None, 7, None, Verdict.TIERED),
        ((TIERED_A, TIERED_B), "killed", 7, None, Verdict.TIERED),
        ((round_of("db.c", TieringState.FAILED), TIERED_A, TIERED_B), None, 7, None, Verdict.TIERED),
        ((TIERED_A, TIERED_B), None, 8, None, Verdict.TIERED),
        ((TIERED_A, TIERING_B), "killed", 7, None, Verdict.CANCELLED),
        ((), "killed", 7, None, Verdict.CANCELLED),
        # A lease that was dropped has no attempt any more; its rounds' outcomes remain.
        ((TIERED_A,), None, None, None, Verdict.WAITING),
        # D61: the next try of the submit task may tier what failed, or what was never claimed.
        ((FAILED_A, TIERED_B), None, 7, MAY_SUBMIT, Verdict.WAITING),
        ((FAILED_A, FAILED_B), None, 7, UP_FOR_RETRY, Verdict.WAITING),
        ((TIERED_A,), None, 7, UP_FOR_RETRY, Verdict.WAITING),
        ((), "killed", 7, UP_FOR_RETRY, Verdict.WAITING),
        ((TIERED_A, TIERED_B), None, 7, UP_FOR_RETRY, Verdict.TIERED),
        ((FAILED_A, TIERED_B), None, 7, FAILED, Verdict.FAILED),
        ((), "killed", 7, FAILED, Verdict.CANCELLED),
        ((TIERED_A, INTERRUPTED_B), None, 7, None, Verdict.INTERRUPTED),
        ((FAILED_A, INTERRUPTED_B), None, 7, None, Verdict.FAILED),
        ((TIERED_A, INTERRUPTED_B), None, 7, UP_FOR_RETRY, Verdict.WAITING),
        ((TIERED_A,), None, 7, FAILED, Verdict.NOT_SUBMITTED),
        ((TIERED_A,), None, 7, HAS_SUBMITTED, Verdict.WAITING),
        # A claimed round ends by itself: its application may have outlived the task.
        ((TIERED_A, TIERING_B), None, 7, FAILED, Verdict.WAITING),
        # D60: what a newer attempt tiers counts, and it runs again what an older one did not tier.
        ((FAILED_A, TIERED_B), None, 8, None, Verdict.WAITING),
        ((TIERED_A, TIERING_B), None, 8, None, Verdict.WAITING),
        ((TIERED_A, round_of("db.b", TieringState.TIERED, attempt=8)), None, 8, None, Verdict.TIERED),
        ((TIERED_A, round_of("db.b", TieringState.FAILED, attempt=8)), None, 8, None, Verdict.FAILED),
    ],
)
def test_verdict(rounds, cancelled, newest, submit, verdict):  # S25
    assert judge(LeaseOutcome(rounds, cancelled, newest), TABLES, 7, submit).verdict is verdict


def test_what_was_interrupted_is_not_called_a_failure():  # D64
    interrupted = judge(LeaseOutcome((TIERED_A, INTERRUPTED_B), None, 7), TABLES, 7)
    assert interrupted.message == "Tiering was interrupted: db.b (epoch 3): the JVM was killed"
    both = judge(LeaseOutcome((FAILED_A, INTERRUPTED_B), None, 7), TABLES, 7)
    assert both.message == (
        "1 of 2 tables failed to be tiered: db.a (epoch 3): disk full; interrupted: db.b (epoch 3): the JVM was killed"
    )


def test_a_message_is_one_line_whatever_the_errors_are():
    traced = round_of("db.a", TieringState.FAILED, "\ndisk full\n  at Disk.write\n")
    silent = round_of("db.b", TieringState.FAILED)
    failed = judge(LeaseOutcome((traced, silent), None, 7), TABLES, 7)
    assert failed.message == (
        "2 of 2 tables failed to be tiered: db.a (epoch 3): disk full; db.b (epoch 3): no reason was given"
    )


def test_a_cancellation_says_why_and_names_what_failed_for_another_reason():
    by_cancel = round_of("db.b", TieringState.FAILED, "cancelled: task submit was killed")
    cancelled = judge(LeaseOutcome((FAILED_A, by_cancel), "task submit was killed", 7), TABLES, 7)
    assert cancelled.message == "Tiering of db.a, db.b was cancelled: task submit was killed; db.a (epoch 3): disk full"


def test_waiting_says_what_for():
    waiting = judge(LeaseOutcome((TIERING_B,), None, 7), TABLES, 7)
    assert waiting.message == "0 of 2 done; Tiering: db.b (epoch 3); not yet claimed: db.a"
    assert waiting.depends_on_submit


def test_waiting_for_the_next_try_says_what_failed_and_what_the_submit_task_does():  # D61
    waiting = judge(LeaseOutcome((FAILED_A, TIERED_B), None, 7), TABLES, 7, UP_FOR_RETRY)
    assert waiting.message == "2 of 2 done; Failed so far: db.a (epoch 3): disk full; the submit task is up_for_retry"
    assert not judge(LeaseOutcome((TIERED_A, TIERING_B), None, 7), TABLES, 7, UP_FOR_RETRY).depends_on_submit


def test_a_submit_that_ended_is_named_with_what_it_left():
    submit = SubmitState("upstream_failed", ended=True, claims_over=True)
    ended = judge(LeaseOutcome((TIERED_A,), None, 7), TABLES, 7, submit)
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
        "partitions": [],
    }
