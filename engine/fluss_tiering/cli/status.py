"""`fluss-tiering status`: show the tiering status of tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from fluss_tiering.cli import options, output
from fluss_tiering.cli.output import Heading
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.tiering import TieringStatus

_HEADINGS = (
    Heading("Table"),
    Heading("Status"),
    Heading("For"),
    Heading("Epoch", numeric=True),
    Heading("Last tiered"),
    Heading("Failures", numeric=True),
    Heading("Next try"),
)
_EMPTY = "No table is tiered yet. Create one with `fluss-tiering tables create`."


def status(
    table: options.OptionalTable = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing changes until Ctrl-C.")] = False,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
) -> None:
    """Show the tiering status and the last error of each table.

    With --watch, a terminal shows the current statuses all the time. A pipe gets one line for each change; with --json
    the line is a JSON object.
    """
    if watch:
        from fluss_tiering.cli.watch import watch_statuses  # noqa: PLC0415 - for this option only

        watch_statuses(server, table, json=json)
        return
    with TieringClient(server) as client:
        statuses = client.list_tiering_statuses(table)
    if json:
        output.print_json(status_as_json(each) for each in statuses)
        return
    output.print_table(None, _HEADINGS, (_as_row(each) for each in statuses), empty=_EMPTY)
    output.print_errors(_errors(statuses))


def status_table(statuses: Iterable[TieringStatus]) -> Group:
    """The statuses as a table with their errors below, to be shown again and again."""
    shown = list(statuses)
    errors = [
        Text(f"{what}: {output.harmless(message.splitlines()[0])}", "red")
        for what, message in _errors(shown)
        if message.strip()
    ]
    return Group(output.make_table(None, _HEADINGS, (_as_row(each) for each in shown)), *errors)


def status_as_json(status: TieringStatus) -> dict[str, object]:
    """A status for programs."""
    return {
        "database_name": status.path.database,
        "table_name": status.path.table,
        "table_id": status.table_id,
        "status": status.state.value,
        "status_since": output.iso_time(status.state_since),
        "tiering_epoch": status.tiering_epoch,
        "last_tiered_time": output.iso_time(status.last_tiered_time),
        "last_error": status.last_error,
        "last_error_time": output.iso_time(status.last_error_time),
        "consecutive_failures": status.consecutive_failures,
        "next_retry_time": output.iso_time(status.next_retry_time),
        "parked": status.parked,
    }


def _errors(statuses: Iterable[TieringStatus]) -> list[tuple[str, str]]:
    return [
        (f"{each.path}, {output.ago_cell(each.last_error_time)}", each.last_error)
        for each in statuses
        if each.last_error
    ]


def _as_row(status: TieringStatus) -> list[str]:
    return [
        str(status.path),
        output.status_cell(status.state),
        output.since_cell(status.state_since),
        output.count_cell(status.tiering_epoch),
        output.ago_cell(status.last_tiered_time),
        output.count_cell(status.consecutive_failures or None),
        "[bold red]parked:[/] fluss-tiering resume" if status.parked else output.ago_cell(status.next_retry_time),
    ]
