"""Puts the commands together and turns errors into one line and an exit code.

Exit codes: 0 done; 1 refused or failed; 2 bad usage, bad input or a server that cannot be reached.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated, Final

import typer
from rich.markup import escape

from fluss_tiering import __version__
from fluss_tiering.cli import (
    clean,
    history,
    leases,
    output,
    put,
    resume,
    scan,
    serve,
    spark_conf,
    status,
    tables,
    tier,
    verify,
)
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_USAGE_CODES: Final = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TABLE, ErrorCode.INVALID_ROWS, ErrorCode.UNAVAILABLE}
)

app = typer.Typer(
    name="fluss-tiering",
    help="Tier Apache Fluss tables into a lakehouse with Spark: the server and its tools.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.add_typer(tables.app, name="tables")
app.command("put")(put.put)
app.command("scan")(scan.scan)
app.command("status")(status.status)
app.command("resume")(resume.resume)
app.command("history")(history.history)
app.add_typer(leases.app, name="leases")
app.command("tier")(tier.tier)
app.command("verify")(verify.verify)
app.command("clean")(clean.clean)
app.command("spark-conf")(spark_conf.spark_conf)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.console.print(f"fluss-tiering {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done, to standard error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")


def main() -> None:
    """The console script."""
    try:
        app()
    except FlussTieringError as error:
        output.error_console.print(f"[bold red]error:[/] {escape(error.message)}", highlight=False, soft_wrap=True)
        sys.exit(2 if error.code in _USAGE_CODES else 1)
    except KeyboardInterrupt:
        sys.exit(130)
