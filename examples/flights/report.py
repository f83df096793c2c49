"""The table at the end: what was expected, what is there, how long it took."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from examples.flights.job import TableReport


def print_report(console: Console, title: str, reports: Sequence[TableReport]) -> bool:
    """Prints one line a table and says whether all are equal to what was expected."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for heading in ("table", "kind"):
        table.add_column(heading)
    for heading in ("rows expected", "rows in the lake"):
        table.add_column(heading, justify="right")
    table.add_column("compared")
    table.add_column("status")
    for heading in ("epoch", "lake snapshot", "seconds", "rows/s"):
        table.add_column(heading, justify="right")
    for report in reports:
        table.add_row(*_cells(report))
    console.print(table)
    return all(report.comparison.equal for report in reports)


def _cells(report: TableReport) -> list[str]:
    comparison, tiered = report.comparison, report.tiering_round
    difference = f"[bold red]{comparison.missing:,} missing, {comparison.unexpected:,} unexpected[/]"
    cells = [
        comparison.name,
        report.kind,
        f"{comparison.rows_expected:,}",
        f"{comparison.rows_in_lake:,}",
        "[green]equal[/]" if comparison.equal else difference,
    ]
    if tiered is None or tiered.stats is None or tiered.end_time is None:
        return [*cells, "[red]never tiered[/]", "", "", "", ""]
    seconds = max(tiered.end_time - tiered.start_time, 1) / 1000
    return [
        *cells,
        f"[green]{tiered.state}[/]",
        f"{tiered.tiering_epoch}",
        str(tiered.stats.lake_snapshot_id or "–"),
        f"{seconds:.1f}",
        f"{tiered.stats.rows / seconds:,.0f}",
    ]
