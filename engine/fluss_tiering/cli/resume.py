"""`fluss-tiering resume`: make failed tables Pending at once."""

from __future__ import annotations

from typing import Annotated

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState


def resume(
    tables: Annotated[
        list[TablePath] | None,
        typer.Argument(parser=TablePath.parse, metavar="DATABASE.TABLE", help="The tables.", show_default=False),
    ] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Resume all parked tables.")] = False,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Make failed tables Pending at once and reset their count of failures. This also resumes parked tables.

    A table that has not failed stays as it is.
    """
    if bool(tables) == parked:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            "name the tables to resume, or use --parked to resume all parked tables, but not both",
        )
    with TieringClient(server) as client:
        paths = tables or [status.path for status in client.list_tiering_statuses() if status.parked]
        answers = client.resume_tables(paths) if paths else []
    if not paths:
        output.print_sentence("No table is parked.")
    refused = None
    for path, answer in zip(paths, answers, strict=True):
        if isinstance(answer, FlussTieringError):
            refused = answer
            output.print_errors([(str(path), answer.message)])
        elif answer.state is TieringState.PENDING:
            output.print_sentence(f"{path} is Pending.")
        else:
            output.print_sentence(f"{path} has not failed: it is {answer.state}.")
    if refused is not None:
        raise typer.Exit(1)
