"""Judge what the rounds under a lease mean for a task that waits for them.

The sensor, its trigger and the submit task share this, so that they say the same words about the same outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_fluss.submit_task import SubmitState
from fluss_tiering.model.tiering import OUTCOMES, LeaseOutcome, TieringRound, TieringState
from fluss_tiering.plural import counted

_NAMED: Final = 10
"""How many tables a message names that says the same of all of them."""


class Verdict(StrEnum):
    """The result of looking at the rounds under a lease."""

    WAITING = "waiting"
    TIERED = "tiered"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    NOT_SUBMITTED = "not_submitted"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and a message about it.

    Attributes:
        verdict: The verdict.
        message: One line for people. It names each table that failed with its last error.
        rounds: One summary for each table that has a round, as JSON values.
        depends_on_submit: Whether the verdict will depend on the submit task, because a table has not been claimed, or
            its round failed, or the attempt was cancelled.
    """

    verdict: Verdict
    message: str
    rounds: tuple[dict[str, Any], ...] = ()
    depends_on_submit: bool = False

    def to_event(self) -> dict[str, Any]:
        """Return the judgement as the payload of a trigger event."""
        return {"verdict": self.verdict.value, "message": self.message, "rounds": list(self.rounds)}


def judge(
    outcome: LeaseOutcome, tables: Sequence[str], attempt_token: int | None, submit: SubmitState | None = None
) -> Judgement:
    """Return whether all `tables` are Tiered under this lease, or why they will not be.

    The judgement uses the recorded outcomes of rounds and not the statuses of the tables, because a status moves on as
    soon as its round has ended. If all tables are Tiered, the verdict is success, even if the attempt was cancelled
    afterwards. If nothing but a person or the infrastructure ended the other rounds, they were interrupted, which is no
    failure of a table. Anything but success is decided only when the submit task has ended, because its next try goes
    on with the same tables. A failure is final only when every table has an outcome, so that one bad table does not
    hide how the other rounds ended. If a newer attempt began under the lease, its rounds count: the lease is that of
    one acquire task of one DAG run.

    Args:
        outcome: The answer of the server for the lease and the attempt.
        tables: The `database.table` of each table that the task waits for.
        attempt_token: The attempt that the task waits for, or None if the lease was never acquired.
        submit: What the submit task could still do, before `outcome` was asked for; None if it is not watched.
    """
    newest = max(outcome.newest_attempt_token or 0, attempt_token or 0)
    rounds = {str(each.path): each for each in outcome.rounds if not _is_of_older_attempt(each, newest)}
    of_tables = [rounds[table] for table in tables if table in rounds]
    unclaimed = [table for table in tables if table not in rounds]
    running = [each for each in of_tables if each.state not in OUTCOMES]
    failed = [each for each in of_tables if each.state is TieringState.FAILED]
    cancelled = outcome.cancelled_reason
    depends_on_submit = bool(unclaimed or failed or cancelled is not None)

    def judged(verdict: Verdict, message: str) -> Judgement:
        return Judgement(verdict, message, tuple(_summary(each) for each in of_tables), depends_on_submit)

    if not unclaimed and not running and not failed:
        return judged(Verdict.TIERED, f"{_count(tables)} Tiered")
    if cancelled is not None and (submit is None or submit.ended):
        others = [each for each in failed if cancelled not in (each.error or "")]
        open_ = [table for table in tables if table not in rounds or rounds[table].state is not TieringState.TIERED]
        return judged(
            Verdict.CANCELLED,
            "; ".join([f"Tiering of {named(open_)} was cancelled: {_line(cancelled)}", *_named(others)]),
        )
    if unclaimed and submit is not None and submit.claims_over:
        never = (
            f"The task that submits the application ended ({submit.words}) and these tables were never claimed: "
            f"{', '.join(unclaimed)}. See its log, and clear it"
        )
        return judged(Verdict.NOT_SUBMITTED, "; ".join([never, *_named(failed)]))
    if unclaimed or running or (submit is not None and not submit.ended):
        return judged(Verdict.WAITING, _progress(tables, unclaimed, running, failed, submit))
    interrupted = [each for each in failed if each.interrupted]
    if len(interrupted) == len(failed):
        return judged(Verdict.INTERRUPTED, f"Tiering was interrupted: {'; '.join(_named(interrupted))}")
    return judged(Verdict.FAILED, _failure(failed, len(tables)))


def fail_if_ended(judgement: Judgement, cause: Exception | None = None) -> None:
    """Raise what the rounds tell, if all of them have ended. The next try tiers what was only interrupted.

    Raises:
        AirflowException: The rounds were interrupted.
        AirflowFailException: A table failed, or a person stopped the rounds.
    """
    match judgement.verdict:
        case Verdict.INTERRUPTED:
            raise AirflowException(judgement.message) from cause
        case Verdict.FAILED | Verdict.CANCELLED:
            raise AirflowFailException(judgement.message) from cause


def named(tables: Sequence[object]) -> str:
    """Return the names of tables for a message: of all of them if they are few."""
    more = len(tables) - _NAMED
    return ", ".join([*map(str, tables[:_NAMED]), *([f"{more} more"] if more > 0 else [])])


def _is_of_older_attempt(each: TieringRound, newest: int) -> bool:
    """Return whether a newer attempt will run this round again. What an older attempt tiered is tiered."""
    return each.state is not TieringState.TIERED and (each.attempt_token or 0) < newest


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
        "partitions": list(stats.partitions) if stats else [],
    }


def _failure(failed: Sequence[TieringRound], total: int) -> str:
    by_itself = [each for each in failed if not each.interrupted]
    of = f"{len(by_itself)} of {total} tables" if total > 1 else "The table"
    parts = [f"{of} failed to be tiered: {'; '.join(_named(by_itself))}"]
    if interrupted := _named(each for each in failed if each.interrupted):
        parts.append(f"interrupted: {'; '.join(interrupted)}")
    return "; ".join(parts)


def _named(failed: Iterable[TieringRound]) -> list[str]:
    return [f"{each.path} (epoch {each.tiering_epoch}): {_line(each.error)}" for each in failed]


def _line(text: str | None) -> str:
    """Return the first line of a cause. The status of the table has all of it."""
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines else "no reason was given"


def _progress(
    tables: Sequence[str],
    unclaimed: Sequence[str],
    running: Sequence[TieringRound],
    failed: Sequence[TieringRound],
    submit: SubmitState | None,
) -> str:
    parts = [f"{len(tables) - len(unclaimed) - len(running)} of {len(tables)} done"]
    if tiering := ", ".join(f"{each.path} (epoch {each.tiering_epoch})" for each in running):
        parts.append(f"Tiering: {tiering}")
    if unclaimed:
        parts.append(f"not yet claimed: {', '.join(unclaimed)}")
    if failed:
        parts.append(f"Failed so far: {', '.join(_named(failed))}")
    if submit is not None and (unclaimed or failed):
        parts.append(f"the submit task {submit.words}")
    return "; ".join(parts)


def _count(tables: Sequence[str]) -> str:
    return counted(len(tables), "table")
