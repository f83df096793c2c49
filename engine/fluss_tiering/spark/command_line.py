"""Options of the programs that `spark-submit` runs: each is said once, in a field of a dataclass.

Such a dataclass has the field `tables` for the positional arguments, and for each option a field with `about` as its
metadata. This module imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.units import memory_size_text, parse_memory_size

_ABOUT: Final = "about"
MOST_COUNT: Final = (1 << 31) - 1
"""The largest number of files, snapshots, rows or tasks that Spark and Iceberg take: an int of Java."""


@dataclass(frozen=True, slots=True)
class About:
    """What a command line says of an option.

    Attributes:
        flag: The option's name on a command line.
        help: What the option means, in full sentences.
        metavar: What stands for the value in a help text; None for the option's own name.
        least: The smallest number that is allowed; None for any number.
        most: The largest number that is allowed; None for any number.
        check: Raises a FlussTieringError if the text is not allowed; None if every text is.
        is_size: Whether the number is one of bytes, which may have a unit.
        always_passed_on: Whether a submit passes the option on, even if it has its default value.
        in_application: Whether the application's own command line has the option.
    """

    flag: str
    help: str
    metavar: str | None = None
    least: int | None = None
    most: int | None = None
    check: Callable[[str], object] | None = None
    is_size: bool = False
    always_passed_on: bool = False
    in_application: bool = True


def at_least(parse: Callable[[str], float], least: float, text: str) -> Callable[[str], object]:
    """Return a check of texts that also refuses values that are too small, with INVALID_REQUEST.

    Args:
        parse: Returns the value of a text, or raises a FlussTieringError.
        least: The smallest value that is allowed.
        text: This value, as a command line has it.
    """

    def check(given: str) -> None:
        if parse(given) < least:
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{given!r} is too little: expected at least {text}")

    return check


WORTH_REWRITING: Final = at_least(parse_memory_size, 1 << 20, "1mb")
"""The check of sizes that limit a rewrite. A size below a megabyte is a slip, such as 10 for 10gb."""


def about(flag: str, text: str, **more: Any) -> Mapping[str, About]:
    """Return the metadata of a field that is an option. The arguments are those of `About`."""
    return {_ABOUT: About(flag, text, **more)}


@dataclass(frozen=True, slots=True)
class Option:
    """An option, as commands need it.

    Attributes:
        type: The type of its value: bool, int, float or str.
        default: The value of an option that is not given; `dataclasses.MISSING` for one that must be given.
        about: What a command line says of it.
    """

    name: str
    type: type
    default: Any
    about: About

    @property
    def is_flag(self) -> bool:
        """Whether the option is given without a value."""
        return self.type is bool

    def parse(self, text: str) -> Any:  # noqa: ANN401 - as the field's type says
        """Return the value that a text of a command line stands for.

        Raises:
            FlussTieringError: INVALID_REQUEST if it stands for none.
        """
        if self.about.check is not None:
            self.about.check(text)
        # `int` takes 1_000 and spaces, too.
        is_number = self.about.is_size or text.isdecimal() or self.type is not int or self.about.least is None
        try:
            value = parse_memory_size(text) if self.about.is_size else self.type(text)
        except ValueError:
            is_number, value = False, None
        if not is_number or not self.allows(value):
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{text!r} is not {self.expected}")
        return value

    def allows(self, value: Any) -> bool:  # noqa: ANN401 - as the field's type says
        """Return whether the value is between the smallest one and the largest one that are allowed."""
        # NaN is not at least anything.
        least, most = self.about.least, self.about.most
        return (least is None or value >= least) and (most is None or value <= most)

    @property
    def expected(self) -> str:
        """The numbers that are allowed, in words."""
        least, most = self.about.least, self.about.most
        if most is not None:
            return f"a whole number from {least or 0} to {most}"
        if self.about.is_size:
            return f"a size of at least {memory_size_text(least or 0)}"
        if self.type is int:
            return "a whole number" if least is None else f"a whole number above {least - 1}"
        return "a number" if least is None else f"a number of at least {least}"


def options_of(kind: type) -> Mapping[str, Option]:
    """Return the options of a dataclass by the names of their fields, in the order of the fields."""
    hints = get_type_hints(kind)
    return {each.name: _option(each, hints[each.name]) for each in fields(kind) if _ABOUT in each.metadata}


def check_options(values: object) -> None:
    """Check the values of a dataclass's options.

    Raises:
        FlussTieringError: INVALID_REQUEST if a value is wrong.
    """
    for option in options_of(type(values)).values():
        value = getattr(values, option.name)
        if value is not None and option.about.check is not None:
            try:
                option.about.check(value)
            except FlussTieringError as error:
                raise FlussTieringError(error.code, f"{option.about.flag}: {error.message}") from None
        if value is not None and not option.allows(value):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, f"{option.about.flag}: {value!r} is not {option.expected}"
            )


def arguments_of(values: Any) -> list[str]:  # noqa: ANN401 - any dataclass of options
    """Return the command line that stands for the values of a dataclass: its options, its flags and its tables.

    Options that an application's own command line lacks are left out, and so are values that are defaults.
    """
    named: list[str] = []
    flags: list[str] = []
    for option in options_of(type(values)).values():
        flag, value = option.about.flag, getattr(values, option.name)
        if not option.about.in_application or (value == option.default and not option.about.always_passed_on):
            continue
        if option.is_flag:
            flags.append(flag)
        else:
            named += [flag, str(value)]
    return [*named, *flags, *(str(path) for path in values.tables)]


def add_arguments(parser: argparse.ArgumentParser, kind: type, *, tables: str = "*") -> None:
    """Add the options and the tables of a dataclass to the parser of an application's command line.

    Args:
        kind: The dataclass.
        tables: How many tables there are, as `nargs` of argparse has it.
    """
    for option in options_of(kind).values():
        if option.about.in_application:
            _add(parser, option)
    parser.add_argument(
        "tables",
        nargs=tables,
        type=_parser_of(TablePath.parse),
        metavar="DATABASE.TABLE",
        help="The tables, each once.",
    )


def _option(each: Field[Any], hint: Any) -> Option:  # noqa: ANN401 - a type as `typing` has it
    (kind,) = [part for part in get_args(hint) if part is not NoneType] or [hint]
    return Option(each.name, kind, each.default, each.metadata[_ABOUT])


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    about = option.about
    if option.is_flag:
        parser.add_argument(about.flag, dest=option.name, action="store_true", help=about.help)
        return
    required = option.default is MISSING
    parser.add_argument(
        about.flag,
        dest=option.name,
        type=_parser_of(option.parse),
        default=None if required else option.default,
        required=required,
        metavar=about.metavar,
        help=about.help,
    )


def _parser_of(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return the same parser, with errors as argparse expects them."""

    def parsed(text: str) -> object:
        try:
            return parse(text)
        except FlussTieringError as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return parsed
