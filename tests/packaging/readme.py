"""The commands and files that the README shows, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

README = Path(__file__).parents[2] / "README.md"

_FENCED = r"^ *```(?P<language>\w*)\n(?P<text>(?:.*\n)*?) *```$"
_INDENTED = r"(?:^ {4,}.*\n)+"


@dataclass(frozen=True)
class Command:
    """A line that the reader types."""

    line: str


@dataclass(frozen=True)
class PythonFile:
    """A file that the reader writes."""

    text: str


def steps() -> list[Command | PythonFile]:
    """Return what the README shows, in order, without its diagram."""
    found: list[Command | PythonFile] = []
    for block in re.finditer(f"(?m){_FENCED}|{_INDENTED}", README.read_text()):
        text = dedent(block["text"] if block["language"] is not None else block[0])
        if block["language"] == "python":
            found.append(PythonFile(text))
        elif block["language"] != "mermaid":
            found += [Command(line) for line in text.splitlines() if line.strip()]
    return found
