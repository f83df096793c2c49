"""The classes of commands and their groups: help and errors in plain words. An option that is given twice is a slip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from fluss_tiering.cli.common import examples, help_words, security, usage_words
from fluss_tiering.cli.common.near_tables import did_you_mean
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_SAID_BY_OTHERS: Final = frozenset({"A", "A,B", "DURATION", "FOLDER", "SIZE", "[ID@]HOST:PORT[,HOST:PORT]"})
"""The values whose own check names an empty one, and says more about what is expected."""


class Command(TyperCommand):
    """A command. One that asks a server takes the options of the connection behind its name, too."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        asks_server = any("--server" in each.opts for each in self.params)
        self._of_connection: list[Any] = security.options() if asks_server else []
        for each in self._of_connection:
            # The help of each command would be mostly about these.
            each.hidden = True
        self.params += self._of_connection
        name_values(self.params)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401 - a type that typer keeps to itself
        """Run the command with the credentials that are given."""
        if self._of_connection:
            security.use(**{each.name: ctx.params.pop(each.name) for each in self._of_connection})
        with did_you_mean(ctx.params):
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - a type that typer keeps to itself
        """Read the words behind the command.

        Raises:
            FlussTieringError: INVALID_REQUEST if an option that takes one value is given twice, since the command would
                take the last one and say nothing about the others; or if a value is empty.
        """
        with _in_our_words({}):
            given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        check_not_empty(order, given)
        for parameter, times in Counter(order).items():
            if times > 1 and isinstance(parameter, TyperOption) and not (parameter.multiple or parameter.is_flag):
                option = max(parameter.opts, key=len)
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"{option} is given {times} times: expected {option} {parameter.metavar} once",
                )
        with _in_our_words(given):
            return super().parse_args(ctx, args)

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

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the examples, and which other options may stand here."""
        if shown := examples.of(ctx.command_path):
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in shown))
        if self._of_connection:
            names = ", ".join(max(each.opts, key=len) for each in self._of_connection)
            program = ctx.command_path.split()[0]
            formatter.write_paragraph()
            formatter.write_text(f"Options for a server that asks who calls: {names}. See {program} --help.")


class Group(TyperGroup):
    """A group of commands."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        name_values(self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Read the words before the command and its name."""
        try:
            with _in_our_words({}):
                given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        except Exception as error:
            # typer keeps the type of the error to itself.
            option = getattr(error, "option_name", None)
            if option is not None and hasattr(error, "message") and (names := self._command_with(option, args)):
                error.message += f". It stands behind the command: {ctx.command_path} {' '.join(names)} {option} ..."
            raise
        check_not_empty(order, given)
        with _in_our_words(given):
            return super().parse_args(ctx, args)

    def _command_with(self, option: str, args: list[str]) -> list[str]:
        """Return the names of the command that is among the words; none if there is none, or none with the option."""
        found: Any = self
        names: list[str] = []
        for word in args:
            inner = getattr(found, "commands", {}).get(word)
            if inner is not None:
                found = inner
                names.append(word)
        return names if names and any(option in each.opts for each in found.params) else []


@contextmanager
def _in_our_words(given: Mapping[str, Any]) -> Iterator[None]:
    """Refuse a wrong command line in our words: see `usage_words.reword`."""
    try:
        yield
    except Exception as error:
        # typer keeps the types of its errors to itself.
        usage_words.reword(error, given)
        raise


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
