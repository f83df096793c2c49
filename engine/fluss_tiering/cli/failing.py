"""What `fluss-tiering status` says of each table that fails: since when, why, what was done, and what to do now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.markup import escape

from fluss_tiering.cli.common import output
from fluss_tiering.cli.status_view import next_round
from fluss_tiering.client import TieringClient
from fluss_tiering.model.error_text import harmless
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import RoundOrigin, TieringRound, TieringState, TieringStatus
from fluss_tiering.plural import counted

_EXPLAINED: Final = 10
"""How many failing tables are explained. What more of them fail of is mostly the same."""
_ROUNDS: Final = 10
"""Among how many rounds the last failed one is looked for. Those after it were interrupted, or run."""


def print_failing(client: TieringClient, statuses: Sequence[TieringStatus]) -> None:
    """Explain the tables that fail, among these statuses."""
    failing = [each for each in statuses if each.failing]
    for status in failing[:_EXPLAINED]:
        for line in _lines(status, _last_failure(client, status)):
            output.print_sentence(line)
        output.print_sentence("")
    if (more := len(failing) - _EXPLAINED) > 0:
        output.print_sentence(
            f"{counted(more, 'more table')} {'fails' if more == 1 else 'fail'}: `fluss-tiering status DATABASE.TABLE` "
            "explains one, and --json has the errors of all."
        )


def origin_text(origin: RoundOrigin) -> str:
    """Return the task in Airflow and the Spark application of a round in one line; empty if none is known."""
    task = [
        f"{name} {value}"
        for name, value in (
            ("DAG", origin.dag_id),
            ("run", origin.run_id),
            ("task", origin.task_id),
            ("map index", "" if origin.map_index is None else origin.map_index),
            ("try", origin.try_number or ""),
        )
        if value != ""
    ]
    spark = " at ".join(filter(None, (origin.spark_application_id, origin.spark_ui_url)))
    return harmless("; ".join(filter(None, (", ".join(task), spark and f"Spark application {spark}"))))


def _last_failure(client: TieringClient, status: TieringStatus) -> TieringRound | None:
    try:
        rounds = client.list_tiering_rounds(status.path, limit=_ROUNDS)
    except FlussTieringError:
        # The status is worth more than the round, for example while the table is dropped.
        return None
    return next((each for each in rounds if each.state is TieringState.FAILED and not each.interrupted), None)


def _lines(status: TieringStatus, failed: TieringRound | None) -> list[str]:
    since = status.failing_since or status.last_error_time
    when = "" if since is None else f" since {output.moment(since)} ({output.ago_cell(since)})"
    lines = [
        f"[bold red]{status.path} is failing[/]{when}: {counted(status.consecutive_failures, 'failure')} in a row",
        f"  Why: {escape(_indented(status.last_error or 'the driver gave no reason'))}",
    ]
    if failed is not None:
        of = None if failed.origin is None else origin_text(failed.origin)
        lines.append(f"  Round: epoch {failed.tiering_epoch}, {escape(of or harmless(failed.driver))}")
    lines.append(f"  Next: {_next(status)}")
    return lines


def _indented(error: str) -> str:
    return "\n       ".join(harmless(error).splitlines())


def _next(status: TieringStatus) -> str:
    history = f"`fluss-tiering history {status.path}` shows its rounds"
    if status.parked:
        resume = f"remove the cause, then run `fluss-tiering resume {status.path}`"
        return f"it is parked, so it is not tried again: {resume}. {history}"
    if status.state is TieringState.TIERING:
        return f"it is tried again now. {history}"
    at_once = f"`fluss-tiering tier {status.path}` tries it at once"
    when = "is due now" if status.state is TieringState.PENDING else f"begins {next_round(status)}"
    return f"the next try {when}. {at_once}. {history}"
