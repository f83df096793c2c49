"""Which tests show the rows of docs/reference/behaviour.md: those that name a row's number in a comment."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

ROW: Final = re.compile(
    r"^\| (?P<number>[LSK]\d{1,2}|#\d{4}) \| (?P<text>[^|]+) \| (?P<where>[^|]+) \|(?P<shown>[^|\n]*)\|$", re.MULTILINE
)
_HEADINGS: Final = re.compile(r"^\| # \| ([^|]+) \|.*\n\|---\|---\|.*$", re.MULTILINE)
_CITED: Final = re.compile(r"\b[LSK]\d{1,2}\b|(?<=Fluss )#\d{4}\b")
_NAMED_TESTS: Final = 3
_TESTS: Final = ("tests", "verification")
_PACKAGE: Final = Path("engine", "fluss_tiering")


def fill_in(page: str, root: Path) -> str:
    """The page with the tests of each row in its last column."""
    shown = citations(root)

    def row(match: re.Match[str]) -> str:
        tests = shown.get(match["number"], [])
        named = ", ".join(f"[{name}](../../{path})" for path, name in tests[:_NAMED_TESTS])
        more = len(tests) - _NAMED_TESTS
        cell = f"{named} and {more} more" if more > 0 else named
        return f"| {match['number']} | {match['text']} | {match['where']} | {cell} |"

    return ROW.sub(row, page)


def with_folded_columns(page: str) -> str:
    """The page with two columns instead of four: the names of files and tests are folded up below what they are about.

    On a web page, these long names would leave the sentences a narrow column.
    """

    def row(match: re.Match[str]) -> str:
        more = f"Implemented in {match['where'].strip()}. Shown by {match['shown'].strip()}."
        folded = f"<details><summary>Code and tests</summary>{more}</details>"
        return f"| {match['number']} | {match['text']} {folded} |"

    return ROW.sub(row, _HEADINGS.sub("| # | behaviour |\n|---|---|", page))


@cache
def citations(root: Path) -> Mapping[str, list[tuple[str, str]]]:
    """Number -> the tests that name it, as (file from the root, name)."""
    shown: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(path for folder in _TESTS for path in (root / folder).rglob("test_*.py")):
        name = str(path.relative_to(root))
        for number, test in _cited_in(path.read_text()):
            if (name, test) not in shown.setdefault(number, []):
                shown[number].append((name, test))
    return shown


def missing_places(page: str, root: Path) -> list[str]:
    """Rows whose implementation is said to be in files that do not exist."""
    return [
        f"{match['number']}: {place}"
        for match in ROW.finditer(page)
        for place in re.findall(r"`([^`]+)`", match["where"])
        if not (root / place).exists() and not (root / _PACKAGE / place).exists()
    ]


def _cited_in(source: str) -> Iterator[tuple[str, str]]:
    tests = sorted(
        (min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.end_lineno or node.lineno, node.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type is not tokenize.COMMENT:
            continue
        # A comment above a test belongs to it as one inside it does.
        test = next((name for _, end, name in tests if token.start[0] <= end), None)
        if test is not None:
            for number in _CITED.findall(token.string):
                yield number, test
