"""How tiering statuses are shown: as a table for people with why a table fails, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.markup import escape

from fluss_tiering.cli.common import output
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.common.security import about_nothing
from fluss_tiering.client import TieringClient
from fluss_tiering.model.error_text import harmless
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import RoundOrigin, TieringRound, TieringState, TieringStatus
from fluss_tiering.plural import counted
from fluss_tiering.short_times import lag

_HEADINGS = (
    Heading("Table"),
    Heading("Status"),
    Heading("Since", spare=5),
    Heading("Records waiting", numeric=True, spare=3),
    Heading("Lag", numeric=True, spare=1),
    Heading("Next round", spare=2),
    Heading("Last tiered", spare=6),
    Heading("Epoch", numeric=True, spare=7),
    Heading("Failures", numeric=True, spare=4),
)
_EMPTY = "No table is tiered yet. Create one with `fluss-tiering tables create`."
_HIDDEN = (
    "No table that you may see is tiered. Create one with `fluss-tiering tables create`, or ask an administrator of "
    "the server for a role."
)


def print_statuses(statuses: Sequence[TieringStatus], *, failing: bool = False) -> None:
    """Print the statuses as a table."""
    empty = "No table is failing." if failing else about_nothing(_EMPTY, _HIDDEN)
    output.print_table(None, _HEADINGS, map(_as_row, statuses), empty=empty)


def print_interruptions(statuses: Iterable[TieringStatus]) -> None:
    """Print why tables that do not fail were interrupted."""
    output.print_errors(_errors(each for each in statuses if not each.failing))


def in_order(statuses: Iterable[TieringStatus]) -> list[TieringStatus]:
    """Return statuses with those of failing tables first."""
    return sorted(statuses, key=lambda each: (not each.failing, each.path))


def shown_state(status: TieringStatus) -> str:
    """Return the state of a table in the words of its history, which tells interrupted rounds from failed ones."""
    return "Interrupted" if status.interrupted else status.state.value


def status_as_json(status: TieringStatus) -> dict[str, object]:
    """Return a status as a JSON object."""
    return {
        "database_name": status.path.database,
        "table_name": status.path.table,
        "table_id": status.table_id,
        "status": status.state.value,
        "interrupted": status.interrupted,
        "status_since": output.iso_time(status.state_since),
        "tiering_epoch": status.tiering_epoch,
        "last_tiered_time": output.iso_time(status.last_tiered_time),
        "last_error": status.last_error,
        "last_error_time": output.iso_time(status.last_error_time),
        "consecutive_failures": status.consecutive_failures,
        "failing_since": output.iso_time(status.failing_since),
        "next_retry_time": output.iso_time(status.next_retry_time),
        "parked": status.parked,
        "records_waiting": status.records_waiting,
        "waiting_since": output.iso_time(status.waiting_since),
        "lag_ms": status.lag_ms(output.now_ms()),
        "next_round_time": output.iso_time(status.next_round_time),
        "freshness_ms": status.freshness_ms,
        "last_maintained_time": output.iso_time(status.last_maintained_time),
        "maintenance_saved_files": status.maintenance_saved_files,
        "maintenance_rewritten_bytes": status.maintenance_rewritten_bytes,
        "maintenance_expired_snapshots": status.maintenance_expired_snapshots,
        "maintenance_deleted_files": status.maintenance_deleted_files,
        "switched_on_time": output.iso_time(status.switched_on_time),
        "dropped_untiered_records": status.dropped_untiered_records,
        "dropped_untiered_time": output.iso_time(status.dropped_untiered_time),
    }


def maintenance_line(status: TieringStatus) -> str:
    """Return a line about the maintenance of a table's lake table."""
    if status.last_maintained_time is None:
        return (
            f"{status.path}: maintenance has not run since the server started (the commands compact, expire and clean "
            "are not counted)"
        )
    return (
        f"{status.path}: maintenance last ran {output.ago_cell(status.last_maintained_time)}; since the server "
        f"started, it has rewritten {output.bytes_cell(status.maintenance_rewritten_bytes)}, expired "
        f"{_counted(status.maintenance_expired_snapshots, 'snapshot')} and deleted "
        f"{_counted(status.maintenance_deleted_files, 'file')}; the lake table has "
        f"{_counted(status.maintenance_saved_files, 'file')} fewer by it"
    )


def dropped_line(status: TieringStatus) -> str | None:
    """Return a line about records that were dropped before they were in the lake; None if there are none."""
    records = status.dropped_untiered_records
    if not records:
        return None
    when = output.ago_cell(status.dropped_untiered_time)
    return (
        f"{status.path}: {counted(records, 'log record')} never came into the lake, because a partition was dropped "
        f"first (last noticed {when})"
    )


def dropped_line_of(client: TieringClient, table: TablePath) -> str | None:
    """Return the line of a table, as `dropped_line` does; None, too, if the table is not tiered."""
    try:
        (status,) = client.list_tiering_statuses(table)
    except FlussTieringError as error:
        if error.code is not ErrorCode.INVALID_TIERING_STATE:
            raise
        return None
    return dropped_line(status)


def _counted(number: int | None, noun: str) -> str:
    return f"{output.NOTHING} {noun}s" if number is None else counted(number, noun)


def _errors(statuses: Iterable[TieringStatus]) -> list[tuple[str, str]]:
    return [
        (f"{each.path}, {output.ago_cell(each.last_error_time)}", each.last_error)
        for each in statuses
        if each.last_error
    ]


def _as_row(status: TieringStatus) -> list[str]:
    failures = output.count_cell(status.consecutive_failures)
    return [
        str(status.path),
        _status_cell(status),
        output.ago_cell(status.state_since),
        output.count_cell(status.records_waiting),
        lag(status.lag_ms(output.now_ms())),
        next_round(status),
        output.ago_cell(status.last_tiered_time),
        output.count_cell(status.tiering_epoch),
        f"[bold red]{failures}[/]" if status.failing else failures,
    ]


def _status_cell(status: TieringStatus) -> str:
    if status.parked:
        return output.status_cell("Parked")
    failing = status.failing and status.state is not TieringState.FAILED
    return output.status_cell(shown_state(status)) + (", [bold red]failing[/]" if failing else "")


def next_round(status: TieringStatus) -> str:
    """Return when the next round of a table is, in the words of the page in Airflow."""
    if status.parked:
        return "when resumed"
    if status.state is TieringState.TIERING:
        return "runs now"
    if status.state is TieringState.PENDING:
        return "due now"
    at = status.next_round_time
    if at is None or at >= output.now_ms() + 1_000:
        return output.ago_cell(at)
    return "with the next row" if status.state is TieringState.SCHEDULED else "due now"


_EXPLAINED: Final = 10
"""How many failing tables are explained. What more of them fail of is mostly the same."""
_ROUNDS: Final = 10
"""Among how many rounds the last failed one is looked for. Those after it were interrupted, or run."""


def print_failing(client: TieringClient, statuses: Sequence[TieringStatus]) -> None:
    """Explain the tables that fail, among these statuses."""
    failing = [each for each in statuses if each.failing]
    for status in failing[:_EXPLAINED]:
        for line in _failure_lines(status, _last_failure(client, status)):
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


def _failure_lines(status: TieringStatus, failed: TieringRound | None) -> list[str]:
    since = status.failing_since or status.last_error_time
    when = "" if since is None else f" since {output.moment(since)} ({output.ago_cell(since)})"
    lines = [
        f"[bold red]{status.path} is failing[/]{when}: {counted(status.consecutive_failures, 'failure')} in a row",
        f"  Why: {escape(_indented(status.last_error or 'the driver gave no reason'))}",
    ]
    if failed is not None:
        of = None if failed.origin is None else origin_text(failed.origin)
        lines.append(f"  Round: epoch {failed.tiering_epoch}, {escape(of or harmless(failed.driver))}")
    lines.append(f"  Next: {_next_step(status)}")
    return lines


def _indented(error: str) -> str:
    return "\n       ".join(harmless(error).splitlines())


def _next_step(status: TieringStatus) -> str:
    history = f"`fluss-tiering history {status.path}` shows its rounds"
    if status.parked:
        resume = f"remove the cause, then run `fluss-tiering resume {status.path}`"
        return f"it is parked, so it is not tried again: {resume}. {history}"
    if status.state is TieringState.TIERING:
        return f"it is tried again now. {history}"
    at_once = f"`fluss-tiering tier {status.path}` tries it at once"
    when = "is due now" if status.state is TieringState.PENDING else f"begins {next_round(status)}"
    return f"the next try {when}. {at_once}. {history}"
