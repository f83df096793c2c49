"""docs/configuration.md, made from the code: settings of the server, options of tables, options of the application."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from fluss_tiering.cli.main import app
from fluss_tiering.model.table_options import TABLE_OPTIONS
from fluss_tiering.server.settings import DurationMs, FlussOption, MemorySize, ServerSettings
from fluss_tiering.server.tiering.options import ICEBERG_PREFIX
from fluss_tiering.spark.options import argument_parser

_INTRODUCTION = """# Configuration

Made from the code by `make docs`. Durations and sizes are whole numbers with a unit, as Fluss writes them:
`500ms`, `30s`, `10min`, `6h`, `3d`; `64kb`, `10mb`.

## Server

`fluss-tiering serve -D KEY=VALUE`, or the environment variable `FLUSS_TIERING_` and the key in capitals with
underscores: `kv.snapshot.interval` is `FLUSS_TIERING_KV_SNAPSHOT_INTERVAL`. What the command line says wins. Keys in
bold are Fluss's own.
"""
_TABLES = f"""
## Tables

Options in a table's properties: `fluss-tiering tables create --property KEY=VALUE`, and `fluss-tiering tables alter`.
Other `iceberg.…` options become properties of the lake table; `{ICEBERG_PREFIX}…` overrides a property of the lake
catalog for one table. *Only* means that the option may be given, since Fluss has it, but with this value alone.
"""
_APPLICATION = """
## Tiering application

Arguments of `spark-submit … application.py`; the Airflow operator has them under the same names.
"""
_COMMANDS = """
## Commands

What `fluss-tiering COMMAND --help` shows.
"""


def page() -> str:
    """The page's text."""
    return "".join(
        (
            _INTRODUCTION,
            _table(("key", "type", "default", "meaning"), map(_setting, ServerSettings.model_fields.items())),
            _TABLES,
            _table(
                ("key", "type", "default", "meaning"),
                (
                    (
                        f"`{each.key}`",
                        each.type,
                        f"{each.default}{', *only*' if each.only else ''}",
                        each.meaning,
                    )
                    for each in TABLE_OPTIONS
                ),
            ),
            _APPLICATION,
            _table(("argument", "default", "meaning"), map(_argument, _arguments())),
            _COMMANDS,
            _table(
                ("command", "option", "type", "default", "meaning"), _command_options(typer.main.get_command(app), ())
            ),
        )
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n" + "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _setting(item: tuple[str, FieldInfo]) -> tuple[str, str, str, str]:
    name, field = item
    if not field.description:
        raise ValueError(f"setting {name} says nothing of what it means: expected a docstring below it")
    fluss = next((each.key for each in field.metadata if isinstance(each, FlussOption)), None)
    key = f"**`{fluss}`**" if fluss else f"`{name.replace('_', '-')}`"
    type_name, default = _type_and_default(field)
    return key, type_name, default, inspect.cleandoc(field.description)


def _type_and_default(field: FieldInfo) -> tuple[str, str]:
    default = field.get_default(call_default_factory=True)
    if DurationMs.__metadata__[0] in field.metadata:
        return "Duration", f"`{_duration(default)}`" if default is not None else "–"
    if MemorySize.__metadata__[0] in field.metadata:
        return "MemorySize", f"`{default >> 20}mb`"
    kinds = [each for each in get_args(field.annotation) if each is not NoneType]
    if get_origin(field.annotation) is Literal:
        return "Enum: " + ", ".join(f"`{each}`" for each in kinds), f"`{default}`"
    kind: Any = get_origin(field.annotation) or field.annotation
    if kinds and kind is not dict:
        kind = kinds[0]
    names = {int: "Integer", bool: "Boolean", dict: "JSON object"}
    shown = "–" if default in (None, {}, "") else f"`{str(default).lower() if isinstance(default, bool) else default}`"
    return names.get(kind, "String"), shown


def _duration(milliseconds: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def _arguments() -> list[argparse.Action]:
    # argparse has no public list of them.
    return [action for action in argument_parser()._actions if action.dest != "help"]  # noqa: SLF001


def _argument(action: argparse.Action) -> tuple[str, str, str]:
    if not action.help:
        raise ValueError(f"argument {action.dest} of the application says nothing of what it means")
    name = action.option_strings[0] if action.option_strings else f"{action.metavar}…"
    needed = action.required or not action.option_strings
    default = "needed" if needed else "–" if action.default in (None, False) else f"`{action.default}`"
    return f"`{name}`", default, action.help


def _command_options(command: TyperGroup | TyperCommand, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            yield from _command_options(child, (*names, name))
        return
    for parameter in command.params:
        option = max(parameter.opts, key=len)
        name = option if option.startswith("-") else parameter.metavar or option.upper()
        yield f"`{' '.join(names)}`", f"`{name}`", _kind(parameter), _default(parameter), _meaning(parameter)


def _kind(parameter: TyperOption | TyperArgument) -> str:
    if getattr(parameter, "is_flag", False):
        return "Flag"
    names = {int: "Integer", float: "Number", Path: "Path"}
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is Literal or hasattr(kind, "__members__"):
        return "Enum: " + ", ".join(f"`{each}`" for each in get_args(kind) or kind)
    return names.get(kind, "String")


def _default(parameter: TyperOption | TyperArgument) -> str:
    if parameter.required:
        return "needed"
    shown = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    return "–" if shown in (None, False, "") else f"`{shown}`"


def _meaning(parameter: TyperOption | TyperArgument) -> str:
    variable = f" Environment: `{parameter.envvar}`." if parameter.envvar else ""
    return f"{parameter.help or ''}{variable}"
