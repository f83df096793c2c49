"""The commands and files that a section of the README shows, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

README = Path(__file__).parents[2] / "README.md"
SECTION = "Use it with your Airflow and Spark"

_FENCED = r"^ *```(?P<language>\w*)\n(?P<text>(?:.*\n)*?) *```$"
# The text of list items is indented by three columns.
_INDENTED = r"(?:^ {4,}.*\n)+"


@dataclass(frozen=True)
class Command:
    """A line that the reader types."""

    line: str


@dataclass(frozen=True)
class PythonFile:
    """A file that the reader writes."""

    text: str


def steps(page: str = "") -> list[Command | PythonFile]:
    """Return what the section shows, in order.

    Args:
        page: The text of the page; the README without it.
    """
    section = re.search(rf"(?ms)^## {SECTION}\n(.*?)(?=^## |\Z)", page or README.read_text())
    assert section, f"the README has no section {SECTION!r}"
    found: list[Command | PythonFile] = []
    for block in re.finditer(f"(?m){_FENCED}|{_INDENTED}", section[1]):
        text = dedent(block["text"] if block["language"] is not None else block[0])
        if block["language"] == "python":
            found.append(PythonFile(text))
        else:
            found += [Command(line) for line in text.splitlines() if line.strip()]
    return found
