"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.units import parse_duration_ms

PARQUET: Final = ".parquet"
CSV: Final = ".csv"
"""How the names of Parquet files end."""

Server = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        envvar="FLUSS_TIERING_SERVER",
        metavar="[ID@]HOST:PORT[,HOST:PORT]",
        help="The address of the tiering server, or those of several servers. With an id, a server of another id is an "
        "error.",
    ),
]

Master = Annotated[str, typer.Option(metavar="URL", help="The master URL of Spark.")]
DEFAULT_MASTER: Final = "local[*]"

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
        metavar="TEXT",
        help="A text that means NULL in a CSV file if it is not in quotes. An empty value without quotes always does.",
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


def names(option: str, text: str | None, *, known: Collection[str] = ()) -> tuple[str, ...]:
    """Return the column names in the text of an option, such as `A,B`; none if the option was not given.

    Args:
        option: The option.
        text: Its text.
        known: The names of columns that begin or end with blanks. Around others, blanks do not count.

    Raises:
        FlussTieringError: INVALID_REQUEST if a name is empty.
    """
    found = () if text is None else tuple(name if name in known else name.strip() for name in text.split(","))
    if not all(found):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{option} {text!r}: expected the names of columns, for example A,B",
        )
    return found


def check_null_values(given: Sequence[str] | None, files: Sequence[Path]) -> None:
    """Refuse texts that mean NULL if no file has any text: they would be ignored.

    Raises:
        FlussTieringError: INVALID_REQUEST if texts are given and all files are Parquet files.
    """
    if given and all(file.suffix.lower() == PARQUET for file in files):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"--null-value is about CSV files, and {', '.join(map(str, files))} "
            f"{'is a Parquet file' if len(files) == 1 else 'are Parquet files'}: leave it out",
        )
