"""`fluss-tiering status`: the tiering status of each table, and why it is so."""

from __future__ import annotations

from typing import Annotated

import typer

from fluss_tiering.cli import options, output
from fluss_tiering.cli.outlook import look_ahead
from fluss_tiering.cli.status_view import print_statuses, status_as_json
from fluss_tiering.cli.watch import watch_statuses
from fluss_tiering.client import DEFAULT_TARGET, TieringClient


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
    """
    if watch:
        watch_statuses(server, table, json=json)
        return
    with TieringClient(server) as client:
        statuses = client.list_tiering_statuses(table)
        outlooks = look_ahead(client, statuses)
    if json:
        output.print_json({**status_as_json(each), **outlooks[each.path].as_json()} for each in statuses)
        return
    print_statuses(statuses, outlooks)
