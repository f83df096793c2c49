"""The report: the figures of both peers and the goals, line by line."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.flink.lakes import Lakes, Written
from benchmarks.flink.rounds import Measured
from benchmarks.flink.work import Sizes, Work

_MB = 1e6


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of work by both peers. `equal` says whether both lakes held the same rows after it."""

    work: Work
    row_count: int
    flink: Measured
    ours: Measured
    flink_wrote: Written
    we_wrote: Written
    equal: bool


def line_of(work: Work, sizes: Sizes, flink: Measured, ours: Measured, lakes: Lakes) -> Line:
    """Read what both peers wrote."""
    contents = [
        {path.table: lakes.content(path, newest) for path, (_, newest) in each.snapshots.items()}
        for each in (flink, ours)
    ]
    return Line(
        work,
        work.rows(sizes),
        flink,
        ours,
        _written(flink, lakes),
        _written(ours, lakes),
        contents[0] == contents[1] and all(each.row_count for each in contents[0].values()),
    )


def show(console: Console, sizes: Sizes, bare_rows_per_second: float, lines: list[Line]) -> None:
    """Print the report."""
    table = Table(
        title=f"Fluss's Flink tiering service and we, on one cluster, log tables of {sizes.log:,} rows",
        title_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("work")
    for heading in ("by", "rows", "seconds", "waited", "rows/s", "CPU s", "peak MB", "files", "deletes", "MB"):
        table.add_column(heading, justify="right")
    for heading in ("Flink / ours", "goal", "same rows"):
        table.add_column(heading)
    for line in lines:
        table.add_row(line.work.name, *_figures(line.flink, line.row_count, line.flink_wrote), "", "", "")
        table.add_row(
            "",
            *_figures(line.ours, line.row_count, line.we_wrote),
            f"{line.flink.seconds / line.ours.seconds:.2f}x, CPU {line.flink.cpu_seconds / line.ours.cpu_seconds:.2f}x",
            ", ".join(
                f"{goal.text}: {'met' if goal.met(line.flink, line.ours) else 'MISSED'}" for goal in line.work.goals
            ),
            "yes" if line.equal else "NO",
            end_section=True,
        )
    console.print(table)
    console.print(f"Bare Parquet encode of {sizes.log:,} rows by pyarrow alone: {bare_rows_per_second:,.0f} rows/s")
    console.print(
        "seconds: from the first claim to the last commit that the cluster knows; waited: from due, or the fresh "
        "process's start, to the claim; CPU and memory of all processes, ours with the server's."
    )


def _figures(measured: Measured, row_count: int, wrote: Written) -> list[str]:
    return [
        measured.peer,
        f"{row_count:,}",
        f"{measured.seconds:.2f}",
        f"{measured.waited:.2f}",
        f"{row_count / measured.seconds:,.0f}",
        f"{measured.cpu_seconds:.1f}",
        f"{measured.peak_bytes / _MB:,.0f}",
        f"{wrote.data_files}",
        f"{wrote.delete_files}",
        f"{wrote.file_bytes / _MB:.1f}",
    ]


def _written(measured: Measured, lakes: Lakes) -> Written:
    each = [lakes.written(path, before, newest) for path, (before, newest) in measured.snapshots.items()]
    return Written(
        sum(one.data_files for one in each), sum(one.delete_files for one in each), sum(one.file_bytes for one in each)
    )
