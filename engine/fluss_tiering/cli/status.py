"""`fluss-tiering status`: the tiering status of each table, and why it is so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.markup import escape

from fluss_tiering.cli import options, output
from fluss_tiering.cli.outlook import Outlook, look_ahead, unknown_outlooks
from fluss_tiering.cli.status_view import health_line, print_statuses, status_as_json
from fluss_tiering.cli.watch import watch_statuses
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringStatus

_OF_AN_ILL_CLUSTER_S: Final = 60.0


def status(
    table: options.OptionalTable = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing changes until Ctrl-C.")] = False,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
) -> None:
    """Show the tiering status and the last error of each table.

    Waiting is the number of log records that are not in the lake. A table is Scheduled until its next round is due.
    With --watch, a terminal shows the current statuses all the time. A pipe gets one line for each change; with --json
    the line is a JSON object.

    With a cluster of Fluss 1.0, the last line tells the health of the cluster.
    """
    if watch:
        watch_statuses(server, table, json=json)
        return
    with TieringClient(server) as client:
        statuses = client.list_tiering_statuses(table)
        health = None if json else _health(client)
    # The server asks an ill cluster for as long as its own calls last, and then says what is the matter.
    with TieringClient(server, timeout=_OF_AN_ILL_CLUSTER_S) as client:
        outlooks = _look_ahead(client, statuses)
    if json:
        output.print_json({**status_as_json(each), **outlooks[each.path].as_json()} for each in statuses)
        return
    print_statuses(statuses, outlooks)
    if health is not None:
        output.console.print(health, highlight=False, soft_wrap=True)


def _look_ahead(client: TieringClient, statuses: Sequence[TieringStatus]) -> dict[TablePath, Outlook]:
    """Return what comes next. An ill cluster keeps only this back, since the server has the statuses itself."""
    try:
        return look_ahead(client, statuses)
    except FlussTieringError as error:
        output.print_warning(f"how many records wait is not known: {error.message}")
        return unknown_outlooks(statuses)


def _health(client: TieringClient) -> str | None:
    """Return a line about the Fluss cluster, if there is one that tells its health."""
    try:
        health = client.cluster_health()
    except FlussTieringError as error:
        return f"Fluss cluster: its health is not known: {escape(output.harmless(error.message))}"
    return None if health is None else health_line(health)
