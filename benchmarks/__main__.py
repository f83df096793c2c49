"""`make bench`: prints what tiering costs, compared with only encoding the same rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import (
    airflow,
    cluster_reading,
    cluster_scan,
    commits,
    delete_files,
    key_index,
    lake_options,
    maintained_week,
    planning,
    requests,
    scaling,
    scan,
    small_rounds,
    storm,
    turns,
)
from benchmarks.cluster import JARS, VERSION_WITH_SESSIONS
from benchmarks.control import ControlBenchmark, ControlSizes, Figure
from benchmarks.tiering import CORES, Measured, Sizes, TieringBenchmark


class Part(StrEnum):
    """A part of the benchmark."""

    ROUNDS = "rounds"
    SMALL_ROUNDS = "small-rounds"
    CONTROL = "control"
    CLUSTER_READING = "cluster-reading"
    CLUSTER_SCAN = "cluster-scan"
    SCALING = "scaling"
    PLANNING = "planning"
    COMMITS = "commits"
    KEY_INDEX = "key-index"
    DELETE_FILES = "delete-files"
    LAKE_OPTIONS = "lake-options"
    WEEK = "week"
    TURNS = "turns"
    REQUESTS = "requests"
    STORM = "storm"
    AIRFLOW = "airflow"


_OF_LAKES: Final[dict[Part, tuple[str, Callable[[float], Iterable[Figure]]]]] = {
    Part.PLANNING: ("Planning a round", planning.measure),
    Part.COMMITS: ("Committing many files", commits.measure),
    Part.KEY_INDEX: ("The key index of a bucket", key_index.measure),
    Part.DELETE_FILES: ("Deletes by position, compared with deletes by key", delete_files.measure),
    Part.LAKE_OPTIONS: ("Partitions by hours, and publishing", lake_options.measure),
}
"""What is about the files of a lake: the title of each table, and what measures its lines."""

console = Console(width=None if sys.stdout.isatty() else 140)


def main(
    scale: Annotated[
        float,
        typer.Option(min=0.001, max=10, help="The number of rows is multiplied by this; 1 is the real benchmark."),
    ] = 1.0,
    only: Annotated[Part | None, typer.Option(help="Run only this part.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the week keeps its table. A run that was ended goes on in it.", file_okay=False),
    ] = None,
) -> None:
    """Measure rounds on the embedded storage, the control plane, and reading and rounds on a Fluss cluster."""
    if only in (None, Part.ROUNDS):
        _rounds(scale)
    if only in (None, Part.SMALL_ROUNDS):
        _print_figures("Many small tables in one application", small_rounds.measure(scale))
    if only in (None, Part.CONTROL):
        full = ControlSizes()
        sizes = ControlSizes(*(max(1, int(getattr(full, name) * min(scale, 1))) for name in ControlSizes.__slots__))
        _print_figures(f"One server with {sizes.tables:,} lake tables", ControlBenchmark(sizes).run())
    if only in (None, Part.TURNS):
        _print_figures("The longest turn of the control thread in each call", turns.measure(min(scale, 1)))
    if only in (None, Part.REQUESTS):
        _print_figures("How long the worst request of each call stalls the server", requests.measure(min(scale, 1)))
    if only in (None, Part.STORM):
        _print_figures("Heartbeats of a driver", storm.measure(min(scale, 1)))
    if only in (None, Part.AIRFLOW):
        sensors = max(1, int(airflow.AirflowSizes().sensors * min(scale, 1)))
        _print_figures("What Airflow pays for the provider", airflow.measure(airflow.AirflowSizes(sensors)))
    # Without Maven there are no jars of a Fluss cluster.
    if only is Part.CLUSTER_READING or (only is None and JARS.exists()):
        _print_figures("Reading a real Fluss cluster", cluster_reading.measure(scale))
    has_sessions = any(JARS.glob(f"{VERSION_WITH_SESSIONS}*/lib"))
    if only is Part.CLUSTER_SCAN or (only is None and has_sessions):
        _print_figures("Scanning a real Fluss cluster", cluster_scan.measure(scale))
    _lakes(only, scale, folder)
    if only is Part.SCALING or (only is None and JARS.exists()):
        _print_scaling(scaling.measure(scale))


def _lakes(only: Part | None, scale: float, folder: Path | None) -> None:
    for part, (title, measure) in _OF_LAKES.items():
        if only in (None, part):
            _print_figures(title, measure(scale))
    # It takes hours, so it runs only when it is asked for.
    if only is Part.WEEK:
        _print_figures("A week of rounds with maintenance", maintained_week.measure(scale, folder))


def _rounds(scale: float) -> None:
    full = Sizes()
    sizes = Sizes(*(max(1, int(getattr(full, name) * scale)) for name in Sizes.__slots__))
    bare, measured = TieringBenchmark(sizes).run()
    _print_rounds(bare, measured)
    _print_stages(measured)
    _print_scan(scan.measure(int(scan.ROWS * scale)))


def _print_rounds(bare: float, measured: list[Measured]) -> None:
    table = _table(
        f"Rounds on {CORES} cores, Spark already up",
        "rows",
        "seconds",
        "rows/s",
        "of bare encode",
        "files",
        "MB written",
        "peak worker MB",
        "load rows/s",
    )
    table.add_row(f"bare encode, {CORES} processes", "", "", f"{bare:,.0f}", "1.00", "", "", "", "")
    for each in measured:
        stats, seconds = each.result.stats, each.result.seconds
        table.add_row(
            each.work,
            f"{stats.rows:,}",
            f"{seconds:.2f}",
            f"{stats.rows / seconds:,.0f}",
            f"{stats.rows / seconds / bare:.2f}",
            f"{stats.files}",
            f"{stats.bytes / 1e6:,.1f}",
            f"{each.result.cost.peak_worker_bytes / 1e6:,.0f}",
            f"{stats.rows / each.load_seconds:,.0f}" if each.load_seconds else "",
        )
    console.print(table)


def _print_figures(title: str, figures: Iterable[Figure]) -> None:
    table = _table(title, "measured", "bound", "")
    for each in figures:
        # The table comes at the end, which may be long after.
        sys.stderr.write(f"{each.work}: {each.value}\n")
        table.add_row(each.work, each.value, each.bound, _mark(each.kept) if each.bound else "")
    console.print(table)


def _print_scaling(measured: list[scaling.Scaled]) -> None:
    table = _table(
        "Rounds of more and more rows on a real Fluss cluster, each by an application that runs already",
        "rows",
        "MB written",
        "seconds",
        "CPU s",
        "rows/s",
        "s/row, of the smallest",
        "bound",
        "",
    )
    for each in measured:
        table.add_row(
            each.work,
            f"{each.stats.rows:,}",
            f"{each.stats.bytes / 1e6:,.1f}",
            f"{each.round.seconds:.2f}",
            f"{each.round.cpu_seconds:.1f}",
            f"{each.stats.rows / each.round.seconds:,.0f}",
            f"{each.times_as_long:.2f}",
            f"<= {scaling.MOST_TIMES_AS_LONG:g}",
            _mark(each.kept),
        )
    console.print(table)


def _print_stages(measured: list[Measured]) -> None:
    table = _table(
        "What the steps cost, in seconds",
        "plan",
        "read and write",
        "commit",
    )
    for each in measured:
        cost = each.result.cost
        table.add_row(each.work, *(f"{value:.2f}" for value in (cost.plan, cost.stage, cost.commit)))
    console.print(table)


def _print_scan(measured: scan.ScanMeasured) -> None:
    table = _table(
        "A scan of a primary-key table over loopback gRPC", "rows", "seconds", "rows/s", "of row by row", "goal"
    )
    for work, seconds, goal in (
        ("decoded row by row in plain Python", measured.row_by_row_seconds, ""),
        ("client.scan", measured.scan_seconds, "5.0"),
    ):
        ratio = measured.row_by_row_seconds / seconds
        rate = measured.rows / seconds
        table.add_row(work, f"{measured.rows:,}", f"{seconds:.2f}", f"{rate:,.0f}", f"{ratio:.1f}", goal)
    console.print(table)
    console.print(
        f"Server memory with {measured.scanners} open scanners: {measured.grown_bytes / 1e6:+,.0f} MB; goal: below 100",
        highlight=False,
    )


def _table(title: str, *headings: str) -> Table:
    """Print a table with one line for each kind of work."""
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("work")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _mark(kept: bool) -> str:
    return "[green]kept[/]" if kept else "[bold red]missed[/]"


if __name__ == "__main__":
    typer.run(main)
