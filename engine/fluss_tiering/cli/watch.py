"""`fluss-tiering status --watch`: show statuses as they change, also across restarts of the server."""

from __future__ import annotations

import json as json_format
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Final

from rich.live import Live
from rich.markup import escape

from fluss_tiering.cli.common import output
from fluss_tiering.cli.status_view import shown_state, status_as_json, status_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.error_text import harmless
from fluss_tiering.model.errors import SERVER_AWAY, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringStatus

_PAUSE_S: Final = 1.0
"""The pause between two attempts to reach an unavailable server."""

Statuses = Mapping[TablePath, TieringStatus]


def watch_statuses(server: str, table: TablePath | None, *, failing: bool, json: bool) -> None:
    """Show the statuses of one table, of all tables or of those that fail, and each change, until an interrupt.

    A server that cannot be reached at the start is an error. A server that becomes unavailable later is waited for.
    """
    with TieringClient(server) as client, closing(_statuses(client, table)) as seen:
        if json or not output.console.is_terminal:
            _print_changes(seen, failing=failing, json=json)
        else:
            _show(seen, failing=failing)


def _statuses(client: TieringClient, table: TablePath | None) -> Generator[Statuses, None, None]:
    """Yield all watched statuses after each change."""
    reached = told = False
    while True:
        statuses: dict[TablePath, TieringStatus] = {}
        try:
            for changes in client.watch_tiering_statuses([table] if table else []):
                reached, told = True, False
                for path in changes.removed:
                    statuses.pop(path, None)
                statuses.update((status.path, status) for status in changes.statuses)
                yield dict(statuses)
        except FlussTieringError as error:
            if not reached or error.code not in SERVER_AWAY:
                raise
            if not told:
                output.print_sentence(escape(f"{error.message}; waiting for the server"), output.error_console)
            told = True
        time.sleep(_PAUSE_S)


def _show(seen: Iterator[Statuses], *, failing: bool) -> None:
    with Live(console=output.console, screen=False, auto_refresh=False) as live:
        for statuses in seen:
            shown = (each for each in statuses.values() if each.failing or not failing)
            live.update(status_table(shown), refresh=True)


def _print_changes(seen: Iterator[Statuses], *, failing: bool, json: bool) -> None:
    # Only what differs from the last statuses is printed, also after the server was unavailable.
    last: Statuses = {}
    for statuses in seen:
        # If only tables that fail are wanted, their recovery is told, too.
        wanted = {path for each in (last, statuses) for path, status in each.items() if status.failing or not failing}
        for path in sorted(wanted & (last.keys() - statuses.keys())):
            _print_removed(path, json=json)
        for path in sorted(path for path in wanted & statuses.keys() if last.get(path) != statuses[path]):
            _print_status(statuses[path], json=json)
        last = statuses


def _print_status(status: TieringStatus, *, json: bool) -> None:
    if json:
        output.print_line(json_format.dumps(status_as_json(status), ensure_ascii=False))
        return
    why = f"  {status.last_error.splitlines()[0]}" if status.last_error and status.last_error.strip() else ""
    parked = f"  parked: fluss-tiering resume {status.path}" if status.parked else ""
    output.print_line(
        f"{output.iso_time(status.state_since)}  {status.path}  {shown_state(status)}  epoch {status.tiering_epoch}"
        f"{parked}{harmless(why)}"
    )


def _print_removed(path: TablePath, *, json: bool) -> None:
    if json:
        removed = {"database_name": path.database, "table_name": path.table, "status": None}
        output.print_line(json_format.dumps(removed))
    else:
        output.print_line(f"{output.iso_time(time.time_ns() // 1_000_000)}  {path}  is not tiered any more")
