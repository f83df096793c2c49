"""The console script: it registers the commands and turns errors into one line and an exit code.

The exit code is 0 if the command succeeded, 1 if it was refused or failed, and 2 for wrong usage, for bad input and for
a server that cannot be reached.
"""

from __future__ import annotations

import inspect
import io
import logging
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from typer.core import TyperGroup

from fluss_tiering.cli import changed_tables, demo, health, history, leases, put, scan, spark_setup, status
from fluss_tiering.cli.common import command, extras, output, security
from fluss_tiering.cli.lake import clean, lake_conf, maintain, maintenance, package, tier, verify
from fluss_tiering.cli.server import serve, token
from fluss_tiering.model.errors import SERVER_AWAY, ErrorCode, FlussTieringError
from fluss_tiering.version import __version__

_USAGE_CODES: Final = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TABLE, ErrorCode.INVALID_ROWS, *SERVER_AWAY}
)


_WIDEST_HELP: Final = 160
"""How many columns of a terminal the help uses at most."""


class _Commands(TyperGroup):
    """The commands. One whose optional dependencies are not installed says what to install."""

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401 - a type that typer keeps to itself
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            missing = extras.missing_extra(ctx.invoked_subcommand or "", error)
            if missing is None:
                raise
            raise missing from error


app = typer.Typer(
    name="fluss-tiering",
    cls=_Commands,
    help="Tier Apache Fluss tables into a data lake with Spark. This command runs the server and its tools.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # The tables that rich makes of options have columns so narrow that they cut names off.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST_HELP},
)


def _add(name: str, function: Callable[..., Any]) -> None:
    # Typer joins the lines of the first paragraph only.
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    whole = [" ".join(paragraph.split()) for paragraph in paragraphs]
    # The list of commands cuts a help off after one line, but not a short help.
    app.command(name, cls=command.Command, help="\n\n".join(whole), short_help=whole[0])(function)


def _add_group(name: str, group: typer.Typer) -> None:
    app.add_typer(group, name=name, short_help=group.info.help)


_add("demo", demo.demo)
_add("serve", serve.serve)
_add("health", health.health)
_add("adopt", serve.adopt)
_add_group("tables", changed_tables.app)
_add("put", put.put)
_add("scan", scan.scan)
_add("status", status.status)
_add("resume", status.resume)
_add("history", history.history)
_add_group("leases", leases.app)
_add("tier", tier.tier)
_add("verify", verify.verify)
_add("publish", maintenance.publish)
_add("maintain", maintain.maintain)
_add("compact", maintenance.compact)
_add("expire", maintenance.expire)
_add("clean", clean.clean)
_add("package", package.package)
_add("spark-conf", spark_setup.spark_conf)
_add("lake-conf", lake_conf.lake_conf)
_add_group("token", token.app)
_add("class-archive", spark_setup.class_archive)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.console.print(f"fluss-tiering {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log each step to standard error.")] = False,
    token_file: security.TokenFile = None,
    tls: security.Tls = None,
    tls_ca: security.TlsCa = None,
    tls_cert: security.TlsCert = None,
    tls_key: security.TlsKey = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version
    security.use(token_file=token_file, tls=tls, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key)
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")


def main() -> None:
    """Run the console script and exit with its code."""
    if sys.stdout is None:
        output.print_sentence("[bold red]error:[/] cannot write to standard output: it is closed", output.error_console)
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # In a locale without Unicode a sign that it lacks is shown by its number, and no command fails for it.
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app()
        finally:
            # An error in the last flush at the interpreter's exit could not be reported in words.
            sys.stdout.flush()
    except FlussTieringError as error:
        output.print_error(error.message)
        sys.exit(2 if error.code in _USAGE_CODES else 1)
    except UnicodeEncodeError as error:
        # Python reads bytes of a command line that are no text so that no message can hold them.
        output.print_error(f"the command line has {error.object!r}, which is not text in UTF-8: expected such text")
        sys.exit(2)
    except BrokenPipeError:
        _discard_output()
        sys.exit(1)
    except OSError as error:
        _discard_output()
        message = error.strerror or str(error)
        if error.filename:
            message = f"cannot use {error.filename}: {message}"
        output.print_sentence(f"[bold red]error:[/] {escape(message)}", output.error_console)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _discard_output() -> None:
    """Discard buffered output, which would otherwise fail again when the interpreter exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
