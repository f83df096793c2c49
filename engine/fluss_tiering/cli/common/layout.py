"""How wide the columns of a table are, and which columns a narrow terminal leaves out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

_EDGES: Final = 2
_GAP: Final = 3
"""The columns of the terminal around a table and between two of its columns, see `side_by_side`."""
_LONGEST_WORD: Final = 20
"""A longer word may be broken, and a longer cell may take several lines."""
_WIDEST_TITLE: Final = 40
_TWO_LINES: Final = 40
"""A longer text may take more than two lines."""
_WORD: Final = re.compile(r"\S+")
_PIECE: Final = re.compile(r"[./_:,=-]")
"""The characters behind which a long name, path or address is broken."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a column.

    Attributes:
        title: The text of the title, without markup.
        numeric: Whether the column is aligned to the right. Its numbers are never broken over lines.
        whole: Whether other cells of the column are never broken over lines either.
        spare: Greater than 0 if a narrow terminal may leave the column out. The greatest is left out first.
    """

    title: str
    numeric: bool = False
    whole: bool = False
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table that are shown.

    Attributes:
        shown: The numbers of the columns.
        widths: The width of each of them; None if they do not fit, however often their cells are broken over lines.
    """

    shown: Sequence[int]
    widths: Sequence[int] | None


def lay_out(headings: Sequence[Heading], rows: Sequence[Sequence[str]], width: int, *, leave_out: bool) -> Layout:
    """Return which columns are shown in a width, and how wide each of them is.

    The first column names the rows. Others are left out until it has up to half of the width, and it gets all that they
    do not need. So a row takes one line unless its name is long.

    Args:
        headings: The titles.
        rows: The cells of each row, with rich markup.
        width: The width of the console.
        leave_out: Whether columns may be left out.
    """
    texts = [[marked_up(cell) for cell in row] for row in rows]
    columns = [[Text(heading.title), *(row[number] for row in texts)] for number, heading in enumerate(headings)]
    whole = [max(_width(text) for text in column) for column in columns]
    least = [
        max([_two_lines_width(title), *map(_width if heading.numeric or heading.whole else _least_width, cells)])
        for heading, (title, *cells) in zip(headings, columns, strict=True)
    ]
    least_name, least[0] = least[0], max(least[0], min(whole[0], width // 2))
    shown = list(range(len(headings)))
    while (room := _room(width, shown) - sum(least[number] for number in shown)) < 0:
        spare = max(shown, key=lambda number: headings[number].spare)
        if leave_out and headings[spare].spare:
            shown.remove(spare)
        elif least[0] > least_name:
            least[0] = max(least_name, least[0] + room)
        else:
            return Layout(shown, None)
    widths = {number: least[number] for number in shown}
    # Then as many columns as possible are so wide that no cell is broken.
    for number in sorted(shown, key=lambda number: (number > 0, whole[number] - least[number])):
        more = min(room, whole[number] - least[number])
        widths[number] += more
        room -= more
    return Layout(shown, [widths[number] for number in shown])


def width_of_whole(headings: Sequence[Heading], rows: Sequence[Sequence[str]], most: int) -> int:
    """Return the width that a table needs if no column is left out and a cell of at most `most` is not broken."""
    columns = ([Text(each.title), *(marked_up(row[number]) for row in rows)] for number, each in enumerate(headings))
    widest = (max(map(_width, column)) for column in columns)
    return sum(min(each, most) for each in widest) + _EDGES + _GAP * (len(headings) - 1)


def side_by_side(
    headings: Sequence[Heading], rows: Sequence[Sequence[str]], shown: Sequence[int], widths: Sequence[int]
) -> Table:
    """Return a table with a line for each row.

    Args:
        headings: The titles.
        rows: The cells of each row, with rich markup.
        shown: The numbers of the columns that the table has.
        widths: The width of each of these columns.
    """
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, width in zip(shown, widths, strict=True):
        heading = headings[number]
        table.add_column(
            # The title of a column of numbers may be broken, but no number.
            Text(heading.title, no_wrap=False),
            justify="right" if heading.numeric else "left",
            overflow="fold",
            no_wrap=heading.numeric,
            width=width,
        )
    for row in rows:
        table.add_row(*(_in_pieces(row[number], width) for number, width in zip(shown, widths, strict=True)))
    return table


def stacked(headings: Sequence[Heading], rows: Sequence[Sequence[str]], width: int) -> Table:
    """Return a table with a line for each cell, and an empty line after each row.

    Args:
        headings: The titles.
        rows: The cells of each row, with rich markup.
        width: The width of the console.
    """
    titles = min(_WIDEST_TITLE, max((_width(Text(heading.title)) for heading in headings), default=0))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", overflow="fold", max_width=titles)
    table.add_column(overflow="fold")
    for row in rows:
        for heading, cell in zip(headings, row, strict=True):
            table.add_row(Text(heading.title), _in_pieces(cell, max(1, width - titles - _EDGES)))
        table.add_row()
    return table


def marked_up(text: str) -> Text:
    """Return a text with rich markup. What stands between two colons is no emoji: it may be a part of an address."""
    return Text.from_markup(text, emoji=False)


def at_spaces(text: Text, width: int) -> Text:
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


def _in_pieces(cell: str, width: int) -> Text:
    """Return a cell in which words that are wider than a column are broken behind a dot, a hyphen or the like."""
    text = marked_up(cell)
    breaks: list[int] = []
    for word in _WORD.finditer(text.plain):
        begin = word.start()
        while cell_len(text.plain[begin : word.end()]) > width:
            ends = [begin + piece.end() for piece in _PIECE.finditer(text.plain[begin : word.end()])]
            fitting = [end for end in ends if cell_len(text.plain[begin:end]) <= width and end < word.end()]
            if not fitting:
                # No such character is near: the table breaks the word where the column ends.
                break
            begin = fitting[-1]
            breaks.append(begin)
    return Text("\n").join(text.divide(breaks))


def _room(width: int, shown: Sequence[int]) -> int:
    return width - _EDGES - _GAP * (len(shown) - 1)


def _width(text: Text) -> int:
    return max((cell_len(line) for line in text.plain.splitlines()), default=0)


def _least_width(text: Text) -> int:
    """Return the width in which a short text takes one line, and in which no word of a long one is broken."""
    width = _width(text)
    return width if width <= _LONGEST_WORD else _two_lines_width(text)


def _two_lines_width(text: Text) -> int:
    """Return the width in which a text takes two lines, or in which none of its words is broken if it is long."""
    words = text.plain.split()
    longest = max((cell_len(word) for word in words), default=0)
    halves = (max(cell_len(" ".join(words[:at])), cell_len(" ".join(words[at:]))) for at in range(1, len(words)))
    two_lines = min(halves, default=longest) if cell_len(text.plain) <= _TWO_LINES else longest
    return min(_LONGEST_WORD, max(longest, two_lines))
