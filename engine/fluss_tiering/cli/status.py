"""`fluss-tiering status`: the tiering status of each table, and why it is so."""

from __future__ import annotations

from typing import Annotated

import typer

from fluss_tiering.cli import options, output
from fluss_tiering.cli.status_view import print_statuses, status_as_json
from fluss_tiering.cli.watch import watch_statuses
from fluss_tiering.client import DEFAULT_TARGET, TieringClient


def status(
    table: options.OptionalTable = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on and show each change, until Ctrl-C.")] = False,
    server: options.Server = DEFAULT_TARGET,
    json: options.Json = False,
) -> None:
    """Show each table's tiering status, with its last error.

    With --watch a terminal shows the table of statuses as it stands; a pipe gets a line for each change, with --json
    as a JSON object.
    """
    if watch:
        watch_statuses(server, table, json=json)
        return
    with TieringClient(server) as client:
        statuses = client.list_tiering_statuses(table)
    if json:
        output.print_json(status_as_json(each) for each in statuses)
        return
    print_statuses(statuses)
