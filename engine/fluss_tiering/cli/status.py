"""`fluss-tiering status` and `resume`: the tiering status of each table, and what to do about tables that fail."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.status_view import (
    dropped_line,
    in_order,
    maintenance_line,
    print_failing,
    print_interruptions,
    print_statuses,
    status_as_json,
)
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.plural import counted

_NAMED: Final = 10
"""How many tables are named whose records were dropped."""


def status(
    table: options.OptionalTable = None,
    failing: Annotated[
        bool, typer.Option("--failing", help="Only the tables whose last round failed, whatever their status is now.")
    ] = False,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
) -> None:
    """Show the tiering status of each table, those that fail first, with what to do about them.

    Records waiting is the number of log records that are not in the lake (with a Fluss cluster up to some 10 seconds
    ago). An update of a row of a primary-key table is two records, the row before and the row after. Lag is for how
    long the oldest of them has waited. For records from before the server's start, Lag is the time since the last
    success. A table is Scheduled until its next round is due and something waits: the time of its next round is the
    earliest one.

    A table fails if its last round failed, also while it is Pending or Tiering again. Below the statuses, each such
    table is explained: since when it fails, why, in which DAG run and task, and what happens next. Interrupted is the
    status Failed without a failure: the last round was cancelled, or its driver was stopped or lost.

    Epoch is the number of the last round. For a Pending table it is that of the coming round.

    For a table that is named, a line below tells what maintenance of its lake table has done. Records that were dropped
    before they were in the lake are told there, too.
    """
    with TieringClient(server) as client:
        statuses = client.list_tiering_statuses(table, failing=failing)
        if json:
            output.print_json(status_as_json(each) for each in statuses)
            return
        statuses = in_order(statuses)
        print_statuses(statuses, failing=failing)
        print_failing(client, statuses)
        print_interruptions(statuses)
    if table is not None:
        for each in statuses:
            output.print_sentence(maintenance_line(each))
            if (dropped := dropped_line(each)) is not None:
                output.print_warning(dropped)
    elif dropping := [str(each.path) for each in statuses if each.dropped_untiered_records]:
        more = f" and {counted(len(dropping) - _NAMED, 'more table')}" if len(dropping) > _NAMED else ""
        output.print_warning(
            f"Log records of {', '.join(dropping[:_NAMED])}{more} never came into the lake: `fluss-tiering status "
            "DATABASE.TABLE` says how many, and --json says it for all tables"
        )


def resume(
    tables: Annotated[
        list[TablePath] | None,
        typer.Argument(parser=TablePath.parse, metavar="DATABASE.TABLE", help="The tables.", show_default=False),
    ] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Resume all parked tables.")] = False,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Make failed tables Pending at once and reset their count of failures. This also resumes parked tables.

    A table that has not failed stays as it is.
    """
    if bool(tables) == parked:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            "name the tables to resume, or use --parked to resume all parked tables, but not both",
        )
    with TieringClient(server) as client:
        paths = tables or [status.path for status in client.list_tiering_statuses() if status.parked]
        answers = client.resume_tables(paths) if paths else []
    if not paths:
        output.print_sentence("No table is parked.")
    refused = None
    for path, answer in zip(paths, answers, strict=True):
        if isinstance(answer, FlussTieringError):
            refused = answer
            output.print_errors([(str(path), answer.message)])
        elif answer.state is TieringState.PENDING:
            output.print_sentence(f"{path} is Pending.")
        else:
            output.print_sentence(f"{path} has not failed: it is {answer.state}.")
    if refused is not None:
        raise typer.Exit(1)
