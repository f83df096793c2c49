"""The words in which a wrong command line is refused. The library's own name types and words of its insides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from typer.core import TyperArgument, TyperOption

from fluss_tiering.cli.common import help_words

_OF_PYDANTIC: Final = "Input should be "
_OF_VALUES: Final = "Value error, "
_SIMILAR: Final = 0.7
"""How similar an option must be to a wrong one, of 1, to be suggested. The hyphens before both do not count."""
_LEAST_LETTERS: Final = 3
"""A shorter word is in too many names of options to say which one is meant."""
_SERVER: Final = ("--server", "-s")


def reword(error: Any, given: Mapping[str, Any]) -> None:  # noqa: ANN401 - types that typer keeps to itself
    """Change an error about a command line so that it says what is wrong in our words.

    Args:
        error: What typer raised.
        given: The values of the parameters as they were written, by their names.
    """
    if hasattr(error, "possibilities"):
        _reword_unknown_option(error)
        return
    parameter = getattr(error, "param", None)
    if isinstance(parameter, TyperArgument):
        error.param_hint = f"'{help_words.name(parameter)}'"
    if parameter is None:
        return
    if hasattr(error, "param_type"):
        # Nothing is given for it.
        error.message = error.message or parameter.help or ""
        return
    message = str(getattr(error, "message", ""))
    if expected := help_words.choices(parameter):
        values = given.get(parameter.name)
        wrong = [each for each in (values if isinstance(values, list) else [values]) if each not in expected]
        error.message = f"{', '.join(map(repr, wrong))} is not one of {', '.join(expected)}"
    elif message.startswith(_OF_PYDANTIC) and isinstance(parameter, TyperOption):
        if expected_number := help_words.expected_number(parameter):
            error.message = f"{given[parameter.name]!r} is not {expected_number}"
    else:
        error.message = message.removeprefix(_OF_VALUES)


def near_options(wrong: str, options: Sequence[str]) -> list[str]:
    """Return the options that a wrong one may have been meant to be: those of nearly its name, or with it as a word."""
    names = {each.lstrip("-"): each for each in options if each.startswith("--")}
    word = wrong.lstrip("-").lower()
    near = get_close_matches(word, names, cutoff=_SIMILAR)
    parts = [name for name in names if len(word) >= _LEAST_LETTERS and word in name.split("-") and name not in near]
    return [names[each] for each in (*near, *parts)]


def _reword_unknown_option(error: Any) -> None:  # noqa: ANN401
    command = error.ctx.command
    option = error.option_name
    error.possibilities = near_options(option, [name for each in command.params for name in each.opts])
    if option in _SERVER and not hasattr(command, "commands"):
        error.message += (
            ". This command starts the server itself: --host and --port say where it listens"
            if command.name == "serve"
            else f". `{error.ctx.command_path}` asks no server"
        )
