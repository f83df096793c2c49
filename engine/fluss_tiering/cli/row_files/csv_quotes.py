"""Finds a quote in CSV that nothing closes. pyarrow takes all that follows it for one value."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Final

_QUOTE: Final = b'"'
_AT_ONCE: Final = 2**20
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LARGEST_VALUE: Final = 2**31 - 1
_END: Final = "\0end"
"""A line behind the text. It belongs to the last row if a quote of that row is open."""


class OpenQuotes:
    """Reads CSV part by part, and knows whether a quote is open behind the parts so far.

    It holds one part and the last row.
    """

    def __init__(self) -> None:
        self._last_row = b""
        self._line = 1
        self._is_open = False

    def read(self, part: bytes) -> None:
        """Read the next part, which may begin and end anywhere."""
        for start in range(0, len(part), _AT_ONCE):
            self._read(part[start : start + _AT_ONCE])

    def line(self) -> int | None:
        """Return the line on which the row with an open quote begins, from 1; None if all quotes are closed."""
        return self._line if self._is_open else None

    def _read(self, part: bytes) -> None:
        text = self._last_row + part
        if self._line == 1 and text.startswith(_BYTE_ORDER_MARK):
            text = text.removeprefix(_BYTE_ORDER_MARK)
        # No byte of a longer character of UTF-8 is a quote, a comma or the end of a line.
        lines = list(io.StringIO(text.decode("latin-1"), newline=""))
        if _QUOTE in text:
            begin, self._is_open = _last_row(lines)
        else:
            begin = max(0, len(lines) - 1)
        self._line += begin
        self._last_row = "".join(lines[begin:]).encode("latin-1")


def line_of_open_quote(path: Path) -> int | None:
    """Return the line on which the row with an open quote begins, from 1; None if all quotes are closed.

    Raises:
        OSError: If the file cannot be read.
    """
    # A file without an open quote mostly has an even number of quotes, and counting them is quick.
    with path.open("rb") as file:
        if not sum(part.count(_QUOTE) for part in iter(lambda: file.read(_AT_ONCE), b"")) % 2:
            return None
        file.seek(0)
        quotes = OpenQuotes()
        for part in iter(lambda: file.read(_AT_ONCE), b""):
            quotes.read(part)
    return quotes.line()


def _last_row(lines: list[str]) -> tuple[int, bool]:
    """Return the number of the line with which the last row begins, from 0, and whether a quote of it is open."""
    begin = next_begin = 0
    is_open = False
    limit = csv.field_size_limit(_LARGEST_VALUE)
    try:
        reader = csv.reader([*lines, _END])
        for row in reader:
            if next_begin == len(lines):
                break
            begin, next_begin = next_begin, reader.line_num
            is_open = bool(row) and row[-1].endswith(_END)
    finally:
        csv.field_size_limit(limit)
    return begin, is_open
