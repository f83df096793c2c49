"""Tables that can be read in the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_SHORT: Final = 20
"""A column whose cells are all this short is never broken over lines."""
_ANY: Final = 10**6
"""A width in which every table has room."""
_GAP: Final = 3
"""The columns of the terminal between two columns of a table."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a column.

    Attributes:
        title: The text of the title, without markup.
        numeric: Whether the column is aligned to the right. Its cells are never broken over lines.
        whole: Whether other cells of the column are never broken over lines either.
        spare: Greater than 0 if a narrow terminal may leave the column out. The greatest is left out first.
    """

    title: str
    numeric: bool = False
    whole: bool = False
    spare: int = 0


def make_table(headings: Sequence[Heading], rows: Sequence[Sequence[str]], console: Console) -> RenderableType:
    """Return a table that fits into the width of a console.

    Columns that can be spared are left out on a terminal that is too narrow, and a line says so. If that is not enough,
    each cell has a line of its own. The first column names the rows. Others are left out until it has up to half of the
    width.

    Args:
        headings: The titles.
        rows: The cells of each row, with rich markup.
    """
    texts = [[marked_up(cell) for cell in row] for row in rows]
    shown = list(range(len(headings)))
    spare = sorted((n for n in shown if headings[n].spare), key=lambda n: headings[n].spare)
    while console.is_terminal and spare and _fitting(headings, texts, shown, console, console.width // 2) is None:
        shown.remove(spare.pop())
    table = _fitting(headings, texts, shown, console, _SHORT)
    if table is None:
        return _stacked(headings, texts)
    left_out = [heading.title for number, heading in enumerate(headings) if number not in shown]
    if not left_out:
        return table
    return Group(table, Text(f"Not shown in this width: {', '.join(left_out)}. See --json.", "dim"))


def marked_up(text: str) -> Text:
    """Return a text with rich markup. What stands between two colons is no emoji: it may be a part of an address."""
    return Text.from_markup(text, emoji=False)


def _fitting(
    headings: Sequence[Heading], rows: Sequence[Sequence[Text]], shown: Sequence[int], console: Console, least: int
) -> Table | None:
    """Return a table whose first column has the room of `least` or more; None if it is wider than the console."""
    others = Measurement.get(console, console.options.update(width=_ANY), _table(headings, rows, shown[1:]))
    room = max(least, console.width - _GAP - others.maximum)
    table = _table(headings, rows, shown, room)
    return (
        table if Measurement.get(console, console.options.update(width=10**6), table).minimum <= console.width else None
    )


def _table(
    headings: Sequence[Heading], rows: Sequence[Sequence[Text]], shown: Sequence[int], first_width: int | None = None
) -> Table:
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number in shown:
        heading, widest = headings[number], max((_width(row[number]) for row in rows), default=0)
        is_whole = heading.numeric or heading.whole or widest <= _SHORT
        table.add_column(
            # A title may be broken, but no number.
            Text(heading.title, no_wrap=False),
            justify="right" if heading.numeric else "left",
            overflow="fold",
            no_wrap=is_whole,
            min_width=widest if is_whole else None,
            max_width=first_width if number == 0 else None,
        )
    for row in rows:
        table.add_row(*(row[number] for number in shown))
    return table


def _stacked(headings: Sequence[Heading], rows: Sequence[Sequence[Text]]) -> Table:
    """Return a table with a line for each cell, and an empty line after each row."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    for row in rows:
        for heading, cell in zip(headings, row, strict=True):
            table.add_row(Text(heading.title), cell)
        table.add_row()
    return table


def _width(text: Text) -> int:
    return max((cell_len(line) for line in text.plain.splitlines()), default=0)
