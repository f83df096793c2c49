"""What the rounds under a lease mean for a task that waits for them; pure, shared by the sensor and its trigger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fluss_tiering.model.tiering import OUTCOMES, LeaseOutcome, TieringRound, TieringState


class Verdict(StrEnum):
    """How waiting on a lease stands."""

    WAITING = "waiting"
    TIERED = "tiered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    NOT_SUBMITTED = "not_submitted"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with what to say about it.

    Attributes:
        message: for people; names each table that failed with its last error.
        rounds: one summary for each table that has a round, as JSON values.
        unclaimed: tables whose round has not begun.
    """

    verdict: Verdict
    message: str
    rounds: tuple[dict[str, Any], ...] = ()
    unclaimed: tuple[str, ...] = ()

    def to_event(self) -> dict[str, Any]:
        """The judgement as a trigger event's payload."""
        return {"verdict": self.verdict.value, "message": self.message, "rounds": list(self.rounds)}


def judge(
    outcome: LeaseOutcome, tables: Sequence[str], attempt_token: int | None, submit_ended: str | None = None
) -> Judgement:
    """Whether all `tables` are Tiered, or why they will not be, under this attempt of a lease.

    Recorded outcomes are what counts (S25): the tables' own statuses move on within the same instant. All Tiered is
    success even if the attempt was cancelled or taken over afterwards; nothing is final before every table has an
    outcome, so that one bad table does not hide how the others ended.

    Args:
        outcome: what the server answered for the lease and the attempt.
        tables: `database.table` of each table waited for.
        attempt_token: of the attempt waited for; None where the lease was never acquired.
        submit_ended: how the task that submits the application ended, if it did, before `outcome` was asked for.
    """
    rounds = {str(each.path): each for each in outcome.rounds}
    of_tables = [rounds[table] for table in tables if table in rounds]
    unclaimed = tuple(table for table in tables if table not in rounds)
    running = [each for each in of_tables if each.state not in OUTCOMES]
    failed = [each for each in of_tables if each.state is TieringState.FAILED]
    summaries = tuple(_summary(each) for each in of_tables)

    def judged(verdict: Verdict, message: str) -> Judgement:
        return Judgement(verdict, message, summaries, unclaimed)

    if not unclaimed and not running and not failed:
        return judged(Verdict.TIERED, f"{_count(tables)} Tiered")
    newest = outcome.newest_attempt_token
    if newest is not None and attempt_token is not None and newest > attempt_token:
        return judged(
            Verdict.SUPERSEDED,
            f"A newer attempt of the same lease took over (attempt {newest}, after this task's {attempt_token}); "
            f"its own sensor waits for the outcome.",
        )
    if outcome.cancelled_reason is not None:
        failures = f"\n{_failures(failed)}" if failed else ""
        return judged(Verdict.CANCELLED, f"Tiering was cancelled: {outcome.cancelled_reason}{failures}")
    if unclaimed and submit_ended is not None:
        return judged(
            Verdict.NOT_SUBMITTED,
            f"The task that submits the application ended ({submit_ended}) and these tables were never claimed: "
            f"{', '.join(unclaimed)}. See its log; if it did not run for this attempt, clear it too.",
        )
    if unclaimed or running:
        return judged(
            Verdict.WAITING, _progress(running, unclaimed, done=len(of_tables) - len(running), total=len(tables))
        )
    return judged(Verdict.FAILED, f"{len(failed)} of {_count(tables)} failed to be tiered:\n{_failures(failed)}")


def _summary(each: TieringRound) -> dict[str, Any]:
    stats = each.stats
    return {
        "table": str(each.path),
        "tiering_epoch": each.tiering_epoch,
        "status": each.state.value,
        "error": each.error,
        "rows": stats.rows if stats else None,
        "bytes": stats.bytes if stats else None,
        "files": stats.files if stats else None,
        "lake_snapshot_id": stats.lake_snapshot_id if stats else None,
    }


def _failures(failed: Iterable[TieringRound]) -> str:
    return "\n".join(
        f"- {each.path} (epoch {each.tiering_epoch}): {each.error or 'no reason was given'}" for each in failed
    )


def _progress(running: Iterable[TieringRound], unclaimed: Sequence[str], *, done: int, total: int) -> str:
    parts = [f"{done} of {total} done"]
    if tiering := ", ".join(f"{each.path} (epoch {each.tiering_epoch})" for each in running):
        parts.append(f"Tiering: {tiering}")
    if unclaimed:
        parts.append(f"not yet claimed: {', '.join(unclaimed)}")
    return "; ".join(parts)


def _count(tables: Sequence[str]) -> str:
    return f"{len(tables)} table{'' if len(tables) == 1 else 's'}"
