"""`make bench-flink`: prints what tiering the same tables costs with Fluss's Flink tiering service and with ours."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import fetch_flink_jars
from benchmarks.encode import bare_encode_seconds
from benchmarks.flink import report
from benchmarks.flink.flink_tiering import FlinkTiering
from benchmarks.flink.lakes import Lakes
from benchmarks.flink.our_tiering import CORES, OurTiering
from benchmarks.flink.rounds import Measured
from benchmarks.flink.tables import BenchmarkTables
from benchmarks.flink.work import Sizes, Turn, Work
from examples.flights.cluster import start_cluster
from examples.flights.processes import Processes
from fetch_fluss_jars import CACHE, FlussVersion, version_named
from fluss_tiering.storage.fluss.rpc.client import FlussClient


class Kind(StrEnum):
    """The process that runs a round: one that is started for it, or one that runs already."""

    FRESH = "fresh"
    RUNNING = "running"


console = Console(width=None if sys.stdout.isatty() else 190)


def main(
    rows: Annotated[
        int, typer.Option(min=1_000, help="The rows of the log table; the real benchmark has 4 million.")
    ] = 4_000_000,
    fluss: Annotated[str, typer.Option(metavar="VERSION", help="The version of Fluss: 0.9.1 or 1.0.")] = "0.9.1",
    only: Annotated[Kind | None, typer.Option(help="Run only rounds of such processes.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with all data and logs.")] = False,
) -> None:
    """Tier the same tables with Fluss's Flink tiering service and with ours, one after the other, on one cluster."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    logging.getLogger("py4j").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="fluss-tiering-bench-flink-"))
    try:
        _run(folder, version_named(fluss), Sizes(rows), only)
    finally:
        if keep:
            console.print(f"Data and logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, version: FlussVersion, sizes: Sizes, only: Kind | None) -> None:
    bare = sizes.log / bare_encode_seconds(sizes.log, CORES, folder)
    measured: dict[Work, list[Measured]] = {}
    with ExitStack() as stack:
        bootstrap, lake_catalog = stack.enter_context(_cluster(folder, version))
        client = stack.enter_context(FlussClient(bootstrap, timeout=60))
        log = folder / "cluster" / "coordinator.log"
        turns = [Turn(BenchmarkTables(client, name, log), sizes) for name in ("flink", "ours")]
        flink = FlinkTiering(folder / "flink", bootstrap, lake_catalog, fetch_flink_jars.class_path(version))
        stack.callback(flink.stop)
        ours = OurTiering(folder / "ours", bootstrap)

        def take(works: Iterator[tuple[Work, Measured]]) -> None:
            for work, each in works:
                console.print(f"{each.peer}: {work.name}: {each.seconds:.2f} s, {each.cpu_seconds:.1f} CPU s")
                measured.setdefault(work, []).append(each)

        if only in (None, Kind.FRESH):
            take(turns[0].fresh_rounds(flink))
            with ours:
                take(turns[1].fresh_rounds(ours))
        if only in (None, Kind.RUNNING):
            take(turns[0].running_rounds(flink))
            with ours:
                take(turns[1].running_rounds(ours))
        with Lakes(lake_catalog) as lakes:
            lines = [report.line_of(work, sizes, flinks, our, lakes) for work, (flinks, our) in measured.items()]
    report.show(console, sizes, bare, lines)
    if not all(line.equal for line in lines):
        sys.exit("error: the two lakes differ: the figures do not count")


@contextmanager
def _cluster(folder: Path, version: FlussVersion) -> Iterator[tuple[str, dict[str, str]]]:
    """Start a cluster, and yield its address and the settings of its lake's catalog."""
    # JDBC on SQLite would not work: each of Flink's tasks opens a catalog of its own, and they block each other.
    lake_catalog = {"type": "hadoop", "warehouse": f"file://{folder}/warehouse"}
    processes = Processes(folder / "cluster")
    try:
        settings = {f"datalake.iceberg.{key}": value for key, value in lake_catalog.items()}
        version.fetch()
        yield start_cluster(processes, folder / "fluss", CACHE, version.release, settings), lake_catalog
    finally:
        processes.stop()


if __name__ == "__main__":
    typer.run(main)
