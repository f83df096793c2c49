"""`fluss-tiering demo`: a server, sample orders, two rounds and a reader, to see the whole in half a minute."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.markup import escape

from fluss_tiering.cli.common import extras, output
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.lake import lake_place
from fluss_tiering.cli.lake.lake_conf import duckdb_sql
from fluss_tiering.client import DEFAULT_PORT, DEFAULT_TARGET, TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.location import Location
from fluss_tiering.model.table import TableDescriptor, TablePath, WriteKind
from fluss_tiering.model.table_options import LAKE_ENABLED
from fluss_tiering.plural import counted
from fluss_tiering.spark.options import TierOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_TABLE: Final = TablePath("shop", "orders")
_ORDERS: Final = 1000
_CHANGED: Final = range(1, 201)
_DELETED: Final = range(901, 951)
_NEW: Final = range(_ORDERS + 1, _ORDERS + 101)
_STATUSES: Final = ("new", "paid", "shipped")
_START_S: Final = 120.0
_SCRIPT: Final = """
import signal
# Ctrl-C is for the demo, which ends its round before its server.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
from fluss_tiering.cli.script import main
main()
"""
_LOG: Final = "server.log"
_MASTER: Final = "local[2]"


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the server running until Ctrl-C, to look around.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The server's port.", show_default="any free port, or 9133 with --keep"),
    ] = None,
) -> None:
    """See it work: tier sample orders into Iceberg, change some of them, tier again, and read the lake with DuckDB.

    The command needs Java 17 or 21 and about half a minute. It starts a tiering server of its own, which keeps the
    table itself, and Spark on this machine. Everything that is written goes into a new folder, whose name is printed.
    If you interrupt the command, it deletes the folder.
    """
    extras.check_installed(extras.MODULES["demo"])
    from fluss_tiering.spark.startup.interrupts import ended_by_sigterm  # noqa: PLC0415 - Spark

    port = _free_port(DEFAULT_PORT if keep and port is None else port or 0)
    target = f"127.0.0.1:{port}"
    # After SIGTERM, too, the server is ended.
    with (
        ended_by_sigterm(),
        _folder(keep) as folder,
        _server(folder, port) as server,
        TieringClient(target) as client,
    ):
        equal = _tier_and_compare(client, server, folder, target)
        if keep and equal:
            _wait(target)
    raise typer.Exit(0 if equal else 1)


def _tier_and_compare(client: TieringClient, server: subprocess.Popen[bytes], folder: Path, target: str) -> bool:
    """Do and print all that the demo shows. Return whether the lake has the rows of the table."""
    from fluss_tiering.cli.lake.spark_session import spark_session  # noqa: PLC0415 - Spark, for some commands only

    began = time.monotonic()
    with ExitStack() as stack:
        with _step("Started Spark, and a tiering server with its embedded storage"):
            spark = stack.enter_context(spark_session(_MASTER))
            _wait_until_it_answers(client, server, folder)
        with _step(f"Wrote {_ORDERS:,} orders into the primary-key table {_TABLE}"):
            info = client.create_table(_TABLE, _descriptor())
            _write(client, WriteKind.UPSERT, _orders(range(1, _ORDERS + 1)))
        _round(target, spark, "First")
        with _step(f"Changed {len(_CHANGED)} orders, added {len(_NEW)} and deleted {len(_DELETED)}"):
            _write(client, WriteKind.UPSERT, _orders([*_CHANGED, *_NEW], later=True))
            _write(client, WriteKind.DELETE, _orders(_DELETED))
        _round(target, spark, "Second")
        with _step("Read the Fluss table with a scan, and the Iceberg table with DuckDB"):
            in_fluss, in_lake = _scanned(client), _read_by_duckdb(duckdb_sql(info))
    _print_rows(in_fluss, in_lake)
    equal = sorted(in_fluss) == sorted(in_lake)
    if equal:
        output.print_sentence(
            f"[bold green]Every order is in the lake, once.[/] {time.monotonic() - began:.0f} s in all."
        )
    else:
        output.print_error("the rows differ: please report this, with the folder below")
    lake_folder = lake_place.folder(info)
    places = {
        "Fluss table": folder / "server",
        "Iceberg table": lake_folder and Location.parse(lake_folder).path,
        "Server's log": folder / _LOG,
    }
    for name, place in places.items():
        output.print_line(f"{name + ':':<15}{place}")
    return equal


def _free_port(wanted: int) -> int:
    """Return the port, or a free one for 0.

    Raises:
        FlussTieringError: INVALID_REQUEST if another program uses it.
    """
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"port {wanted} cannot be used ({error.strerror}): choose another with --port",
            ) from error
        port: int = found.getsockname()[1]
        return port


@contextmanager
def _step(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    _print_step(what, time.monotonic() - began)


def _print_step(what: str, seconds: float) -> None:
    output.console.print(f"[green]✓[/] {escape(what)} [dim]({seconds:.1f} s)[/]", highlight=False, soft_wrap=True)


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    """Make the folder of the demo. Delete it if the block is interrupted, unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="fluss-tiering-demo-"))
    try:
        yield folder
    except (KeyboardInterrupt, SystemExit):
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        output.print_warning(f"interrupted: {folder} is {'kept' if keep else 'deleted'}")
        raise


@contextmanager
def _server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start a tiering server, and end it with the block."""
    # Its port of metrics, the next one, may be somebody else's.
    serve = ["serve", "--data-dir", str(folder / "server"), "--port", str(port), "-D", "metrics-enabled=false"]
    with (folder / _LOG).open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", _SCRIPT, *serve], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_answers(client: TieringClient, server: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait for the server.

    Raises:
        FlussTieringError: UNAVAILABLE if it does not start. The message has the last line of its log.
    """
    deadline = time.monotonic() + _START_S
    while True:
        try:
            client.describe_storage()
        except FlussTieringError as error:
            if server.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            log = folder / _LOG
            last = (log.read_text(errors="replace").strip().splitlines() or ["it wrote no log"])[-1]
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE, f"the server did not start: {last}; its log is {log}"
            ) from error
        else:
            return


def _descriptor() -> TableDescriptor:
    from fluss_tiering.formats.schema import columns_from_arrow  # noqa: PLC0415 - pyarrow

    key = "order_id"
    return TableDescriptor(
        columns_from_arrow(_orders(()).schema, {key}),
        primary_key=(key,),
        num_buckets=2,
        properties={LAKE_ENABLED.key: "true"},
    )


def _orders(ids: Sequence[int], *, later: bool = False) -> pa.RecordBatch:
    """Return orders as a batch. Those that are written later are one status further and cost more."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.record_batch(
        {
            "order_id": pa.array(ids, pa.int64()),
            "customer": pa.array([f"customer {each % 97}" for each in ids], pa.string()),
            "status": pa.array([_STATUSES[(each + later) % 3] for each in ids], pa.string()),
            "cents": pa.array([1000 + each * 37 % 9000 + 500 * later for each in ids], pa.int64()),
        }
    )


def _write(client: TieringClient, kind: WriteKind, rows: pa.RecordBatch) -> None:
    for _ in client.write_rows(_TABLE, kind, [rows]):
        pass


def _round(target: str, spark: SparkSession, which: str) -> None:
    from fluss_tiering.spark import application  # noqa: PLC0415 - Spark
    from fluss_tiering.spark.round.progress import Progress  # noqa: PLC0415

    silent = Progress(lambda line: None)
    (result,) = application.run(TierOptions(server=target, tables=(_TABLE,)), spark, silent)
    if result.error is not None:
        raise FlussTieringError(ErrorCode.UNAVAILABLE, f"the round failed: {result.error}")
    stats = result.stats
    changes, files = counted(stats.rows, "change"), counted(stats.files, "file")
    _print_step(f"{which} round: {changes} in {files}, Iceberg snapshot {stats.lake_snapshot_id}", result.seconds)


Rows = list[tuple[Any, ...]]


def _scanned(client: TieringClient) -> Rows:
    with client.scan(_TABLE) as scan:
        return [tuple(row.values()) for batch in scan for row in batch.to_pylist()]


def _read_by_duckdb(views: str) -> Rows:
    import duckdb  # noqa: PLC0415
    import duckdb_extension_avro  # noqa: PLC0415
    import duckdb_extension_iceberg  # noqa: PLC0415

    with duckdb.connect() as connection:
        # Packages bring the extensions, which DuckDB would otherwise download.
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):
            (extension,) = Path(package.__path__[0]).glob("extensions/*/*.duckdb_extension")
            connection.load_extension(str(extension))
        connection.execute(views)
        return connection.execute("SELECT order_id, customer, status, cents FROM shop.orders").fetchall()


def _print_rows(in_fluss: Rows, in_lake: Rows) -> None:
    headings = [
        Heading("Status of orders"),
        Heading("In Fluss", numeric=True),
        Heading("In Iceberg", numeric=True),
        Heading("Worth in Fluss", numeric=True),
        Heading("Worth in Iceberg", numeric=True),
    ]
    cells = []
    for status in _STATUSES:
        worth = [[cents for _, _, of, cents in rows if of == status] for rows in (in_fluss, in_lake)]
        cells.append([status, *(f"{len(each):,}" for each in worth), *(f"{sum(each) / 100:,.2f}" for each in worth)])
    output.print_table(None, headings, cells, empty="")


def _wait(target: str) -> None:
    option = "" if target == DEFAULT_TARGET else f" -s {target}"
    output.print_sentence(
        f"The server stays at {target} until Ctrl-C. In a second terminal:\n"
        f"    fluss-tiering status{option}\n"
        f"    fluss-tiering history {_TABLE}{option}\n"
        f"    fluss-tiering scan {_TABLE} --limit 5{option}"
    )
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        output.print_sentence("Stopped.")
