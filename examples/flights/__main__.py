"""Tier the New York flights data: `run` does it once; `up` starts all and leaves it running until `down`."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console

from examples.flights.disk import enough_space
from examples.flights.environment import DAG, RUN_FOLDER, Environment, fresh_folder
from examples.flights.job import MainJob
from examples.flights.processes import Processes
from examples.flights.report import print_report
from examples.ports import require_free
from fluss_tiering.client import DEFAULT_PORT
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import KvSnapshotLease

_LOG_COLUMNS: Final = 132
"""The width of output that goes to a file, which has no width of its own."""

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
console = Console(width=None if sys.stdout.isatty() else _LOG_COLUMNS, record=True)

Folder = Annotated[
    Path, typer.Option("--folder", help="Where data, logs and Airflow's own files go.", resolve_path=True)
]
Keep = Annotated[bool, typer.Option("--keep", help="Go on with the data that is in the folder.")]
Fluss = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION",
        help="Start a real Fluss cluster of this version, 0.9.1 or 1.0, and tier its tables, "
        "instead of those of the embedded storage.",
        show_default=False,
    ),
]


@app.command()
def run(
    folder: Folder = RUN_FOLDER / "main-job",
    keep: Keep = False,
    fluss: Fluss = None,
    svg: Annotated[
        Path | None, typer.Option(help="Save the output as a picture to this SVG file.", show_default=False)
    ] = None,
) -> None:
    """Load the flights data, tier it twice through Airflow and compare every row."""
    started = time.monotonic()
    # The programs that are started here have sessions of their own, so they would outlive this process.
    signal.signal(signal.SIGTERM, _end)
    folder = fresh_folder(folder, keep=keep)
    with enough_space(folder):
        equal, leases = _run(folder, fluss)
    seconds = time.monotonic() - started
    if leases:
        console.print(f"[bold red]error:[/] leases left behind: {', '.join(lease.lease_id for lease in leases)}")
    if not equal or leases:
        raise typer.Exit(1)
    console.print(
        f"[bold green]Every row is in the lake, once.[/] {seconds:.0f} s in all; logs in {_shown(folder)}",
        highlight=False,
    )
    if svg is not None:
        console.save_svg(str(svg), title="make run")
    console.print(
        "Next: `make up` leaves the server and Airflow running, to look around. "
        "docs/airflow/quick-start.md tiers a table of your own.",
        highlight=False,
    )


def _run(folder: Path, fluss: str | None) -> tuple[bool, list[KvSnapshotLease]]:
    """Run the main job, and return whether all rows are equal, and the leases that were left behind."""
    environment = Environment(folder, fluss=fluss)
    job = MainJob(environment, console)
    try:
        _start_server(environment)
        _step("Loading the New York flights of 2013")
        job.load()
        _step("Starting Airflow")
        environment.start_airflow()
        console.print(f"server {environment.target}, Airflow {environment.airflow.url}", highlight=False)
        equal = True
        for title, prepare in (("First round", None), ("Second round: upserts, deletes, more flights", job.change)):
            _step(title)
            if prepare is not None:
                prepare()
            job.tier()
            equal = print_report(console, job.compare()) and equal
        with environment.client() as client:
            return equal, client.list_leases()
    finally:
        job.close()
        environment.stop()


@app.command()
def up(
    folder: Folder = RUN_FOLDER / "up",
    keep: Keep = False,
    fluss: Fluss = None,
    server_port: Annotated[int, typer.Option(help="The port of the tiering server.")] = DEFAULT_PORT,
    airflow_port: Annotated[int, typer.Option(help="The port of Airflow's user interface.")] = 8080,
) -> None:
    """Start the tiering server with the flights data and Airflow, and leave them running."""
    folder = fresh_folder(folder, keep=keep)
    require_free(server_port, "--server-port")
    require_free(airflow_port, "--airflow-port")
    with enough_space(folder):
        environment = Environment(
            folder, scheduled=True, fluss=fluss, server_port=server_port, airflow_port=airflow_port
        )
        try:
            _start_server(environment)
            with environment.client() as client:
                loaded = bool(client.list_tables())
            if not loaded:
                _step("Loading the New York flights of 2013")
                MainJob(environment, console).load()
            _step("Starting Airflow")
            environment.start_airflow()
        except BaseException:
            environment.stop()
            raise
    if environment.bootstrap is not None:
        console.print(f"\nFluss           {environment.bootstrap}   (bootstrap servers)", highlight=False)
    console.print(
        f"\ntiering server  {environment.target}   (try: .venv/bin/fluss-tiering status --server {environment.target})"
        f"\nmetrics         http://127.0.0.1:{server_port + 1}/metrics   (for Prometheus)"
        f"\nAirflow         {environment.airflow.url}   (no login; the DAG [bold]{DAG}[/] runs every three minutes)"
        f"\nLake tiering    {environment.airflow.url}/plugin/lake-tiering   (the page that shows all tables)"
        f"\nlogs            {_shown(folder)}"
        f'\n\nEnd all with {_down(folder)}. For other ports: make up ARGS="--server-port 9233 --airflow-port 8081"',
        highlight=False,
    )


@app.command()
def down(folder: Folder = RUN_FOLDER / "up") -> None:
    """End what `up` started."""
    processes = Processes(folder)
    names = [each.name for each in processes.running]
    processes.stop()
    console.print(f"Ended {', '.join(names)}." if names else "Nothing was running.", highlight=False)


def _down(folder: Path) -> str:
    """Return the command that ends what was started in a folder."""
    return "`make down`" if folder == RUN_FOLDER / "up" else f'`make down ARGS="--folder {folder}"`'


def _start_server(environment: Environment) -> None:
    _step(
        f"Starting a cluster of Fluss {environment.fluss} and the tiering server"
        if environment.fluss
        else "Starting the tiering server"
    )
    environment.start_server()


def _shown(folder: Path) -> Path:
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _end(number: int, frame: FrameType | None) -> None:
    # A second signal would interrupt the clean end.
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _step(title: str) -> None:
    console.print(f"[bold]• {title}[/]", highlight=False)


if __name__ == "__main__":
    try:
        app()
    except FlussTieringError as error:
        console.print(f"[bold red]error:[/] {error.message}", highlight=False, markup=True)
        sys.exit(1)
