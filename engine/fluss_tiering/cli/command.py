"""The class of the commands: their help is in plain words, and an option that is given twice is a slip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from typer.core import TyperArgument, TyperCommand, TyperOption

from fluss_tiering.cli import help_words
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_SAID_BY_OTHERS: Final = frozenset({"A", "A,B", "DURATION", "FOLDER", "SIZE", "[ID@]HOST:PORT"})
"""The values whose own check names an empty one, and says more about what is expected."""


_OF_VALIDATORS: Final = "Value error, "
"""What pydantic puts in front of the sentence of a check."""
_OF_PYDANTIC: Final = "Input should be "


class Command(TyperCommand):
    """A command."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        name_values(self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - a type that typer keeps to itself
        """Read the words behind the command.

        Raises:
            FlussTieringError: INVALID_REQUEST if an option that takes one value is given twice, since the command would
                take the last one and say nothing about the others; or if a value is empty.
        """
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        check_not_empty(order, given)
        for parameter, times in Counter(order).items():
            if times > 1 and isinstance(parameter, TyperOption) and not (parameter.multiple or parameter.is_flag):
                option = max(parameter.opts, key=len)
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"{option} is given {times} times: expected {option} {parameter.metavar} once",
                )
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # typer keeps the type of the error to itself, and takes the words for it from pydantic.
            if hasattr(error, "message"):
                error.message = error.message.removeprefix(_OF_VALIDATORS)
            wrong = getattr(error, "param", None)
            if isinstance(wrong, TyperOption) and str(getattr(error, "message", "")).startswith(_OF_PYDANTIC):
                expected = help_words.expected_number(wrong)
                if expected:
                    error.message = f"{given[wrong.name]!r} is not {expected}"  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Return the words of the usage behind the name of the command."""
        arguments = [help_words.name(each) for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        return [*([self.options_metavar] if self.options_metavar else []), *arguments]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the arguments and the options into the help."""
        records: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                shown, meaning = record
                meaning = help_words.with_ranges_in_words(meaning)
                if isinstance(each, TyperArgument):
                    records["Arguments"].append((help_words.name(each), meaning))
                else:
                    records["Options"].append((shown, f"{meaning}  [repeatable]" if each.multiple else meaning))
        for title, rows in records.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def check_not_empty(parameters: Iterable[Any], given: Mapping[str, Any]) -> None:
    """Refuse empty values, as a variable of a shell has that is not set. Else they would mean the default.

    An empty list of columns, an empty duration and the like have errors of their own, which say more.

    Args:
        parameters: The options and arguments that are given.
        given: Their values, by their names.

    Raises:
        FlussTieringError: INVALID_REQUEST if a value is empty.
    """
    for each in parameters:
        values = given.get(each.name)
        texts = values if isinstance(values, (list, tuple)) else [values]
        if "" not in texts or _has_own_error(each):
            continue
        option = isinstance(each, TyperOption)
        shown = max(each.opts, key=len) if option else help_words.name(each)
        expected = f"{each.metavar}, or leave {shown} out" if option and not each.required else "a value"
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{shown} is empty: expected {expected}. A variable of the shell that is not set is empty, too",
        )


def _has_own_error(parameter: Any) -> bool:  # noqa: ANN401
    if parameter.metavar in _SAID_BY_OTHERS:
        return True
    if isinstance(parameter, TyperArgument):
        return parameter.type_descriptor.annotation not in (Path, list[Path])
    return parameter.multiple or bool(help_words.choices(parameter))


def name_values(parameters: list[Any]) -> None:
    """Give each option that takes a value a word for it. Typer would show the name of a type of Python."""
    for each in parameters:
        if isinstance(each, TyperOption):
            each.metavar = help_words.value(each) or None
