"""Judge what the rounds under a lease mean for a task that waits for them. The sensor and its trigger share this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fluss_tiering.model.tiering import OUTCOMES, LeaseOutcome, TieringRound, TieringState


class Verdict(StrEnum):
    """The result of looking at the rounds under a lease."""

    WAITING = "waiting"
    TIERED = "tiered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    NOT_SUBMITTED = "not_submitted"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and a message about it.

    Attributes:
        verdict: The verdict.
        message: A text for people. It names each table that failed with its last error.
        rounds: One summary for each table that has a round, as JSON values.
        unclaimed: The tables whose round has not begun.
    """

    verdict: Verdict
    message: str
    rounds: tuple[dict[str, Any], ...] = ()
    unclaimed: tuple[str, ...] = ()

    def to_event(self) -> dict[str, Any]:
        """Return the judgement as the payload of a trigger event."""
        return {"verdict": self.verdict.value, "message": self.message, "rounds": list(self.rounds)}


def judge(
    outcome: LeaseOutcome, tables: Sequence[str], attempt_token: int | None, submit_ended: str | None = None
) -> Judgement:
    """Return whether all `tables` are Tiered under this attempt of a lease, or why they will not be.

    The judgement uses the recorded outcomes of rounds and not the statuses of the tables, because a status moves on as
    soon as its round has ended. If all tables are Tiered, the verdict is success, even if the attempt was cancelled or
    superseded afterwards. A failure is final only when every table has an outcome, so that one bad table does not hide
    how the other rounds ended.

    Args:
        outcome: The answer of the server for the lease and the attempt.
        tables: The `database.table` of each table that the task waits for.
        attempt_token: The attempt that the task waits for, or None if the lease was never acquired.
        submit_ended: How the submit task ended, if it had ended before `outcome` was asked for.
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
