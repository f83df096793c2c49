"""Print values as tables for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import humanize
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.text import Text

from fluss_tiering.cli.common import layout
from fluss_tiering.cli.common.layout import Heading, marked_up
from fluss_tiering.model.error_text import harmless
from fluss_tiering.short_times import distance

__all__ = ["Heading"]

_PIPED_WIDTH: Final = 1000
"""The width in a pipe or a log. The 80 columns that rich takes by default would break the cells of wide tables."""

_ON_TERMINAL: Final = sys.stdout is not None and sys.stdout.isatty()
console = Console(width=None if _ON_TERMINAL or "COLUMNS" in os.environ else _PIPED_WIDTH)
_PLAIN_ARGUMENT: Final = re.compile(r"[\w@%+=:,./?-]+")
error_console = Console(stderr=True)

_WORD: Final = re.compile(r"\S+")
_STEERING: Final = re.compile(r"[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

NOTHING: Final = "[dim]–[/]"
"""The text of a cell that has no value."""

_STATUS_STYLES: Final = {
    "New": "white",
    "Initialized": "white",
    "Scheduled": "cyan",
    "Pending": "yellow",
    "Tiering": "bold blue",
    "Tiered": "green",
    "Failed": "bold red",
    "Parked": "bold red",
    "Interrupted": "yellow",
}


def print_sentence(text: str, to: Console | None = None) -> None:
    """Print a text with rich markup. A terminal gets it broken into lines at spaces, and a pipe in one line.

    A word that is longer than a line stays whole, so that a path can be copied from a terminal.

    Args:
        text: The text with rich markup.
        to: The console; None for standard output.
    """
    target = console if to is None else to
    whole = marked_up(text)
    target.print(_at_spaces(whole, target.width) if target.is_terminal else whole, highlight=False, soft_wrap=True)


def print_error(message: str) -> None:
    """Print an error message to standard error."""
    print_sentence(f"[bold red]error:[/] {escape(harmless(message))}", error_console)


def print_warning(message: str) -> None:
    """Print to standard error that a part of what was asked for is missing."""
    print_sentence(f"[bold yellow]warning:[/] {escape(harmless(message))}", error_console)


def print_progress(message: str) -> None:
    """Print what a command does now to standard error, so that its result stays alone on standard output."""
    print_sentence(f"[dim]{escape(harmless(message))}[/]", error_console)


@contextmanager
def busy(message: str) -> Iterator[None]:
    """Print what a command does in the block. A terminal also shows that it goes on, and for how long."""
    print_progress(message)
    if not error_console.is_terminal:
        yield
        return
    columns = SpinnerColumn(), TimeElapsedColumn()
    with Progress(*columns, console=error_console, transient=True) as progress:
        progress.add_task("", total=None)
        yield


def print_table(title: str | None, headings: Sequence[Heading], rows: Iterable[Sequence[str]], empty: str) -> None:
    """Print a table of cells with rich markup, or the sentence `empty` if there are no rows."""
    cells = list(rows)
    if not cells:
        console.print(empty, highlight=False)
        return
    if title is not None:
        print_sentence(f"[italic]{escape(title)}[/]")
    console.print(layout.make_table(headings, cells, console))


def print_errors(errors: Iterable[tuple[str, str]]) -> None:
    """Print pairs of a name and an error message below a table, where long messages have room."""
    for what, message in errors:
        print_sentence(f"[bold red]{escape(what)}:[/] {escape(harmless(message))}")


def print_arguments(arguments: Sequence[str]) -> None:
    """Print the arguments of another command, to be used as `command $(fluss-tiering …)`.

    A shell splits what replaces $(…) at spaces, and sees no quotes in it. Quotes are printed only if they are needed,
    with a hint to standard error.
    """
    plain = all(map(_PLAIN_ARGUMENT.fullmatch, arguments))
    text = " ".join(arguments) if plain else shlex.join(arguments)
    print_as_it_is(text)
    if not plain:
        print_progress(
            "Some of these arguments need their quotes, which a shell does not see in $(...): put eval before the "
            'command and the whole of it between double quotes, for example eval "spark-sql $(...)"'
        )


def print_json(values: Iterable[Mapping[str, object]]) -> None:
    """Print a JSON array without decoration, so that other programs can read it.

    Characters that would steer a terminal, or turn the direction of its text, are escaped.
    """
    text = json.dumps(list(values), indent=2, ensure_ascii=False)
    console.file.write(_STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def print_as_it_is(text: str) -> None:
    """Print a text for another program, in which nothing is markup."""
    console.print(text, soft_wrap=True, markup=False, emoji=False, highlight=False)


def print_nothing(why: str, *, as_json: bool) -> None:
    """Print why a command has no result: a sentence on standard output, or on standard error beside an empty array."""
    if as_json:
        print_json(())
        print_progress(why)
    else:
        print_sentence(why)


def print_line(line: str) -> None:
    """Print a line without decoration and flush it, so that a pipe receives it at once."""
    console.file.write(line + "\n")
    console.file.flush()


def status_cell(status: str) -> str:
    """Return the status in its colour."""
    return f"[{_STATUS_STYLES.get(status, 'white')}]{status}[/]"


def ago_cell(time_ms: int | None) -> str:
    """Return how long ago a time was, or how far ahead it is, such as `4 min ago`."""
    return NOTHING if time_ms is None else distance(time_ms, now_ms())


def moment(time_ms: int) -> str:
    """Return a time in UTC to the second, such as `2026-11-28 03:04:05Z`."""
    return _datetime(time_ms).strftime("%Y-%m-%d %H:%M:%SZ")


def now_ms() -> int:
    """Return the present time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def text_cell(text: str | None) -> str:
    """Return text from elsewhere as a cell. The text is never read as markup."""
    return NOTHING if text is None else escape(harmless(text))


def count_cell(number: int | None) -> str:
    """Return a count with thousands separators."""
    return NOTHING if number is None else f"{number:,}"


def bytes_cell(number: int | None) -> str:
    """Return a size in bytes with a binary unit."""
    return NOTHING if number is None else humanize.naturalsize(number, binary=True)


def iso_time(time_ms: int | None) -> str | None:
    """Return a time for JSON as ISO 8601 in UTC with milliseconds."""
    return None if time_ms is None else _datetime(time_ms).isoformat(timespec="milliseconds")


def _datetime(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _at_spaces(text: Text, width: int) -> Text:
    """Return a text that is broken into lines at spaces. A word that is wider than a line stays whole."""
    breaks: list[int] = []
    begin = 0
    for word in _WORD.finditer(text.plain):
        if "\n" in text.plain[begin : word.start()]:
            begin = text.plain.rindex("\n", 0, word.start()) + 1
        if begin < word.start() and cell_len(text.plain[begin : word.end()]) > width:
            begin = word.start()
            breaks.append(begin)
    lines = text.divide(breaks)
    for line in lines[:-1]:
        line.rstrip()
    return Text("\n").join(lines)
