"""Options of commands that are the options of an application, too: the dataclass of the application says them once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.spark.command_line import Option, options_of


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
