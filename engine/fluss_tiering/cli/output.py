"""Tables and JSON for people and programs: how values look in both."""

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
"""In a pipe or a log nothing tells the width; rich's 80 columns break words of the wider tables apart."""

_ON_TERMINAL: Final = sys.stdout is not None and sys.stdout.isatty()
console = Console(width=None if _ON_TERMINAL or "COLUMNS" in os.environ else _PIPED_WIDTH)
error_console = Console(stderr=True)

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""A terminal would obey them."""

NOTHING: Final = "[dim]–[/]"
"""What stands in a cell that has no value."""

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
    """A column's title. Numbers are set to the right and never broken over lines."""

    title: str
    numeric: bool = False


def print_error(message: str) -> None:
    """Prints what went wrong, to standard error."""
    error_console.print(f"[bold red]error:[/] {escape(harmless(message))}", highlight=False, soft_wrap=True)


def print_table(title: str | None, headings: Sequence[Heading], rows: Iterable[Sequence[str]], empty: str) -> None:
    """Prints rows of marked-up cells, or the sentence `empty` when there are none."""
    table = make_table(title, headings, rows)
    if table.row_count:
        console.print(table)
    else:
        console.print(empty, highlight=False)


def make_table(title: str | None, headings: Sequence[Heading], rows: Iterable[Sequence[str]]) -> Table:
    """A table of rows of marked-up cells; a first column wider than half of the width may be broken over lines."""
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
    """Prints what failed below a table, where a long message has room: (what, message)."""
    for what, message in errors:
        console.print(f"[bold red]{escape(what)}:[/] {escape(harmless(message))}", highlight=False, soft_wrap=True)


def print_json(values: Iterable[Mapping[str, object]]) -> None:
    """Prints a JSON array, undecorated, so that other programs can read it."""
    console.file.write(json.dumps(list(values), indent=2, ensure_ascii=False) + "\n")


def print_line(line: str) -> None:
    """Prints a line, undecorated and at once, also into a pipe."""
    console.file.write(line + "\n")
    console.file.flush()


def status_cell(status: str) -> str:
    """The status in its colour."""
    return f"[{_STATUS_STYLES.get(status, 'white')}]{status}[/]"


def ago_cell(time_ms: int | None) -> str:
    """How long ago (or ahead) a time is."""
    return NOTHING if time_ms is None else humanize.naturaltime(_datetime(time_ms), when=datetime.now(UTC))


def since_cell(time_ms: int) -> str:
    """How long something has been so."""
    return humanize.naturaldelta(datetime.now(UTC) - _datetime(time_ms))


def text_cell(text: str | None) -> str:
    """Text that came from elsewhere: never read as markup."""
    return NOTHING if text is None else escape(harmless(text))


def harmless(text: str) -> str:
    """Text that came from elsewhere, without what would steer a terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def count_cell(number: int | None) -> str:
    """A count with separators."""
    return NOTHING if number is None else f"{number:,}"


def bytes_cell(number: int | None) -> str:
    """A size in bytes."""
    return NOTHING if number is None else humanize.naturalsize(number, binary=True)


def iso_time(time_ms: int | None) -> str | None:
    """A time for JSON: ISO 8601 in UTC with milliseconds."""
    return None if time_ms is None else _datetime(time_ms).isoformat(timespec="milliseconds")


def _datetime(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
