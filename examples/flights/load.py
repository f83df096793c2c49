"""Creates the tables and writes changes to them, with a progress bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights.changes import Change
from fluss_tiering.client import TieringClient

_REQUEST_ROWS: Final = 32_768


def create_tables(client: TieringClient, changes: Iterable[Change], freshness: str) -> None:
    """Create the table of each change from the schema of its rows."""
    for change in changes:
        client.create_table(
            change.table.path, change.table.descriptor(change.rows.schema, freshness), ignore_if_exists=True
        )


def write(client: TieringClient, changes: Sequence[Change], console: Console) -> None:
    """Write the changes in order, and return when the last row is acknowledged."""
    with Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        for change in changes:
            task = progress.add_task(f"{change.kind} {change.table.path}", total=change.rows.num_rows)
            batches = change.rows.to_batches(max_chunksize=_REQUEST_ROWS)
            for acknowledged in client.write_rows(change.table.path, change.kind, batches):
                progress.advance(task, acknowledged)
