"""Options and arguments that several commands share, and options that are those of an application."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.units import parse_duration_ms
from fluss_tiering.spark.command_line import Option, options_of

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


def with_options(
    kind: type, names: Sequence[str], *, behind: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command options of a dataclass. They arrive in its `**` parameter.

    Args:
        kind: The dataclass, as in `fluss_tiering.spark.command_line`.
        names: The fields that become options of the command, in the order of its help.
        behind: The parameter of the command behind which they stand in its help.
    """
    known = options_of(kind)
    derived = [_parameter(known[name]) for name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                continue
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            if parameter.name == behind:
                parameters += derived
        # Typer makes a command's options from its signature.
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def _parameter(option: Option) -> inspect.Parameter:
    kind = option.type if option.default is not None else option.type | None
    shown = typer.Option(
        option.about.flag,
        help=option.about.help,
        min=None if option.about.is_size else option.about.least,
        max=option.about.most,
        parser=_parser(option) if option.about.is_size else None,
        metavar=option.about.metavar,
    )
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=Annotated[kind, shown]
    )


def _parser(option: Option) -> Callable[[str], Any]:
    """Return a parser of an option's values whose errors name the option."""

    def parse(text: str) -> Any:  # noqa: ANN401 - as the option's type says
        try:
            return option.parse(text)
        except FlussTieringError as error:
            raise FlussTieringError(error.code, f"{option.about.flag}: {error.message}") from None

    return parse
