"""Print values as tables for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import humanize
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_PIPED_WIDTH: Final = 140
"""The width in a pipe or a log. The 80 columns that rich takes by default would break words of wide tables."""

_ON_TERMINAL: Final = sys.stdout is not None and sys.stdout.isatty()
console = Console(width=None if _ON_TERMINAL or "COLUMNS" in os.environ else _PIPED_WIDTH)
error_console = Console(stderr=True)

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, which a terminal would obey."""

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
}


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a column. Numeric columns are aligned to the right and never broken over lines."""

    title: str
    numeric: bool = False


def print_error(message: str) -> None:
    """Print an error message to standard error."""
    error_console.print(f"[bold red]error:[/] {escape(harmless(message))}", highlight=False, soft_wrap=True)


def print_progress(message: str) -> None:
    """Print what a command does now to standard error, so that its result stays alone on standard output."""
    error_console.print(f"[dim]{escape(harmless(message))}[/]", highlight=False, soft_wrap=True)


def print_table(title: str | None, headings: Sequence[Heading], rows: Iterable[Sequence[str]], empty: str) -> None:
    """Print a table of cells with rich markup, or the sentence `empty` if there are no rows."""
    table = make_table(title, headings, rows)
    if table.row_count:
        console.print(table)
    else:
        console.print(empty, highlight=False)


def make_table(title: str | None, headings: Sequence[Heading], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of cells with rich markup. A first column wider than half of the console may be folded."""
    cells = list(rows)
    first_fits = all(2 * cell_len(row[0]) <= console.width for row in cells)
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(
            heading.title,
            justify="right" if heading.numeric else "left",
            overflow="fold",
            no_wrap=heading.numeric or (number == 0 and first_fits),
        )
    for row in cells:
        table.add_row(*row)
    return table


def print_errors(errors: Iterable[tuple[str, str]]) -> None:
    """Print pairs of a name and an error message below a table, where long messages have room."""
    for what, message in errors:
        console.print(f"[bold red]{escape(what)}:[/] {escape(harmless(message))}", highlight=False, soft_wrap=True)


def print_json(values: Iterable[Mapping[str, object]]) -> None:
    """Print a JSON array without decoration, so that other programs can read it."""
    console.file.write(json.dumps(list(values), indent=2, ensure_ascii=False) + "\n")


def print_line(line: str) -> None:
    """Print a line without decoration and flush it, so that a pipe receives it at once."""
    console.file.write(line + "\n")
    console.file.flush()


def status_cell(status: str) -> str:
    """Return the status in its colour."""
    return f"[{_STATUS_STYLES.get(status, 'white')}]{status}[/]"


def ago_cell(time_ms: int | None) -> str:
    """Return how long ago a time was, or how far ahead it is."""
    return NOTHING if time_ms is None else humanize.naturaltime(_datetime(time_ms), when=datetime.now(UTC))


def since_cell(time_ms: int) -> str:
    """Return the duration since a time."""
    return humanize.naturaldelta(datetime.now(UTC) - _datetime(time_ms))


def text_cell(text: str | None) -> str:
    """Return text from elsewhere as a cell. The text is never read as markup."""
    return NOTHING if text is None else escape(harmless(text))


def harmless(text: str) -> str:
    """Return text from elsewhere without control characters, which could steer a terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


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
