"""Markdown that several pages made from the code share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, with an empty line before it."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n" + "".join(f"| {' | '.join(cell(text) for text in line)} |\n" for line in lines)


def cell(text: str) -> str:
    """Return a text as it can stand in a cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
