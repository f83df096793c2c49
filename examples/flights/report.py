"""The table that is printed at the end: expected rows, rows in the lake, and how long the rounds took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from examples.flights.job import TableReport

_TEXTS: Final = ("table", "kind", "compared", "status")
_NUMBERS: Final = ("rows expected", "rows in the lake", "epoch", "lake snapshot", "seconds", "rows/s")


def print_report(console: Console, reports: Sequence[TableReport]) -> bool:
    """Print a line for each table, and return whether all tables hold the expected rows."""
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in _TEXTS:
        table.add_column(heading, overflow="fold")
    for heading in _NUMBERS:
        table.add_column(heading, justify="right", no_wrap=heading == "lake snapshot")
    for report in reports:
        table.add_row(*_cells(report))
    console.print(table)
    return all(report.comparison.equal for report in reports)


def _cells(report: TableReport) -> list[str]:
    comparison, tiered = report.comparison, report.tiering_round
    difference = f"[bold red]{comparison.missing:,} missing, {comparison.unexpected:,} unexpected[/]"
    compared = "[green]equal[/]" if comparison.equal else difference
    rows = [f"{comparison.rows_expected:,}", f"{comparison.rows_in_lake:,}"]
    if tiered is None or tiered.stats is None or tiered.end_time is None:
        return [comparison.name, report.kind, compared, "[red]never tiered[/]", *rows, "", "", "", ""]
    seconds = max(tiered.end_time - tiered.start_time, 1) / 1000
    return [
        *(comparison.name, report.kind, compared, f"[green]{tiered.state}[/]"),
        *rows,
        f"{tiered.tiering_epoch}",
        str(tiered.stats.lake_snapshot_id or "–"),
        f"{seconds:.1f}",
        f"{tiered.stats.rows / seconds:,.0f}",
    ]
