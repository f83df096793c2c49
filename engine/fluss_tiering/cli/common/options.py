"""Options and arguments that several commands share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath

Server = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        envvar="FLUSS_TIERING_SERVER",
        metavar="[ID@]HOST:PORT",
        help="The address of the tiering server. With an id, a server of another id is an error.",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

Table = Annotated[
    TablePath, typer.Argument(parser=TablePath.parse, metavar="DATABASE.TABLE", help="The table.", show_default=False)
]

Tables = Annotated[
    list[TablePath],
    typer.Argument(parser=TablePath.parse, metavar="DATABASE.TABLE", help="The tables.", show_default=False),
]

OptionalTable = Annotated[
    TablePath | None,
    typer.Argument(parser=TablePath.parse, metavar="DATABASE.TABLE", help="Only this table.", show_default=False),
]

OptionalTables = Annotated[
    list[TablePath] | None,
    typer.Argument(parser=TablePath.parse, metavar="DATABASE.TABLE", help="Only these tables.", show_default=False),
]

NullValue = Annotated[
    list[str] | None,
    typer.Option(
        help="A text that means NULL in a CSV file if it is not in quotes. An empty value without quotes always does."
    ),
]


def duration(option: str, text: str) -> timedelta:
    """Return the duration in the text of an option, such as `3d`.

    Raises:
        FlussTieringError: INVALID_REQUEST if the text is no duration. The message names the option.
    """
    try:
        return timedelta(milliseconds=parse_duration_ms(text))
    except FlussTieringError as error:
        raise FlussTieringError(error.code, f"{option}: {error.message}") from error


def names(option: str, text: str | None) -> tuple[str, ...]:
    """Return the column names in the text of an option, such as `A,B`; none if the option was not given.

    Raises:
        FlussTieringError: INVALID_REQUEST if a name is empty, as it is when the text is an unset variable of a shell.
    """
    found = () if text is None else tuple(name.strip() for name in text.split(","))
    if not all(found):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{option} {text!r}: expected the names of columns, for example A,B; leave {option} out for none",
        )
    return found
