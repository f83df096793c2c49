"""Finds a quote in a CSV file that nothing closes. pyarrow takes all that follows it for one value."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_QUOTE: Final = b'"'
_AT_ONCE: Final = 2**20
_END: Final = "\n\0end"
"""A line that no file has. It is a row of its own behind a file whose quotes are all closed."""


def line_of_open_quote(path: Path) -> int | None:
    """Return the line on which the row with an open quote begins, from 1; None if all quotes are closed.

    Raises:
        OSError: If the file cannot be read.
    """
    # A file without an open quote mostly has an even number of quotes, and counting them is quick.
    with path.open("rb") as file:
        if not sum(part.count(_QUOTE) for part in iter(lambda: file.read(_AT_ONCE), b"")) % 2:
            return None
    limit = csv.field_size_limit(2**31 - 1)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as text, suppress(csv.Error):
            return _line_of_last_row(text)
    finally:
        csv.field_size_limit(limit)
    return None


def _line_of_last_row(text: Iterator[str]) -> int | None:
    """Return the line on which the last row begins if it is still open at the end of the text."""
    reader = csv.reader(_with_end(text))
    begin = next_begin = 1
    is_open = False
    for row in reader:
        begin, next_begin = next_begin, reader.line_num + 1
        is_open = bool(row) and row != [_END.strip("\n")]
    return begin if is_open else None


def _with_end(text: Iterator[str]) -> Iterator[str]:
    yield from text
    yield _END
