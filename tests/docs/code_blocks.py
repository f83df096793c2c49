"""The fenced blocks of code that a page shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
# The text of a block in a list is indented as its fence is.
_FENCED = re.compile(r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class CodeBlock:
    """A block.

    Attributes:
        page: The page's path in the repository.
        line: The number of the line before its first one.
        language: What stands behind the fence.
        code: The text, without the indentation of the fence.
    """

    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        """Return where the block is, as the id of a test."""
        return f"{self.page}:{self.line}"


def code_blocks(page: Path, *languages: str) -> list[CodeBlock]:
    """Return the page's blocks of these languages, in order."""
    text = page.read_text()
    name = str(page.relative_to(ROOT))
    return [
        CodeBlock(name, text.count("\n", 0, found.start("text")), found["language"], dedent(found["text"]))
        for found in _FENCED.finditer(text)
        if found["language"] in languages
    ]
