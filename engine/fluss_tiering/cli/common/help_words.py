"""The words in which the help, and the page about the command line, tell what a value of a parameter is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from typer.core import TyperArgument, TyperOption

_WORDS: Final = {int: "NUMBER", float: "NUMBER", Path: "FILE"}
_OTHERWISE: Final = "TEXT"
_RANGES: Final = (
    (re.compile(r"([\d.]+)<=x<=([\d.]+)"), r"\1 to \2"),
    (re.compile(r"x>=([\d.]+)"), r"at least \1"),
)
"""How typer writes the range of a number, and how everybody reads it."""


def name(argument: TyperArgument) -> str:
    """Return the name of an argument as the usage has it: `[X]` need not be given, and of `X...` there may be more."""
    shown = (argument.metavar or argument.name.upper()).removesuffix("...").strip("[]")
    if not argument.required:
        shown = f"[{shown}]"
    return shown if argument.nargs == 1 else f"{shown}..."


def choices(parameter: TyperOption | TyperArgument) -> list[str]:
    """Return the values that a parameter may have, none if they cannot be listed."""
    kind: Any = parameter.type_descriptor.annotation
    if get_origin(kind) is Literal or hasattr(kind, "__members__"):
        return [str(each) for each in get_args(kind) or kind]
    return []


def value(option: TyperOption) -> str:
    """Return the word that stands for a value of an option, such as NUMBER; empty if the option takes none."""
    if option.is_flag:
        return ""
    if option.metavar:
        return option.metavar
    kind: Any = option.type_descriptor.annotation
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    return "|".join(choices(option)) or _WORDS.get(kind, _OTHERWISE)


def number_range(option: TyperOption) -> str:
    """Return the range of the number that an option takes, such as `1 to 1024`; empty if there is none."""
    if option.min is None:
        return ""
    return f"at least {option.min}" if option.max is None else f"{option.min} to {option.max}"


def expected_number(option: TyperOption) -> str:
    """Return what an error says of the number that an option takes: its range, its unit and an example.

    Returns:
        An empty text if the option takes no number.
    """
    kind: Any = option.type_descriptor.annotation
    if kind not in (int, float):
        return ""
    words = ["a whole number" if kind is int else "a number"]
    if option.min is not None:
        words.append(f"of {number_range(option)}" if option.max is None else f"from {number_range(option)}")
    if option.metavar == "SECONDS":
        words.append("of seconds" if option.min is None else "in seconds")
    example = next((each for each in (option.default, option.show_default) if str(each).isdecimal()), None)
    if example is None and option.metavar == "SECONDS":
        example = 60
    return " ".join(words) + ("" if example is None else f", for example {max(option.opts, key=len)} {example}")


def with_ranges_in_words(text: str) -> str:
    """Return a help text of typer with the ranges of numbers in words."""
    for written, read in _RANGES:
        text = written.sub(read, text)
    return text
