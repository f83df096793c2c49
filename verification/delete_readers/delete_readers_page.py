"""`make delete-readers`: writes the page that says which engine reads which deletes, from the results of tests.

The result is a JUnit file, which `pytest --junitxml=FILE verification/delete_readers/test_delete_readers.py` writes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from markdown_text import table

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "delete-readers.md"
KINDS: Final[dict[str, tuple[str, str]]] = {
    "v2-equality": ("2", "equality delete files"),
    "v2-positions": ("2", "position delete files, each of one data file"),
    "v2-positions-of-many-files": ("2", "position delete files, each of many data files"),
    "v3-equality": ("3", "equality delete files"),
    "v3-vectors": ("3", "deletion vectors"),
    "v3-after-upgrade": ("2, then 3", "position delete files, then deletion vectors"),
}
"""The kinds of the tests -> the format version and the deletes."""
_INTRODUCTION: Final = """# Readers and deletes

This page is made from the results of the tests, by `make delete-readers`. Each cell is a lake table whose rows were
deleted in several commits, and that a real engine read. *Yes* means that the engine found the right rows: in each
snapshot, and with predicates that it may use to skip files. Fluss's Java reader was asked for all rows of the last two
snapshots. *No* means that the engine refuses the table with the error below. No engine found wrong rows. These tables
have no partitions: [lake tables](lake.md#readers) says what differs if a table has some.
"""
_FAILED: Final = "failed"


def read(path: Path) -> dict[tuple[str, str], str]:
    """Return the answer of each engine for each kind of deletes.

    Raises:
        SystemExit: The file is not there, is no JUnit file, or has no results.
    """
    try:
        root = ET.parse(path).getroot()
    except (OSError, ET.ParseError) as error:
        sys.exit(f"error: {path} is no result of tests: {error}; write one with `pytest --junitxml={path}`")
    answers: dict[tuple[str, str], str] = {}
    for case in root.iter("testcase"):
        said = {each.get("name"): each.get("value", "") for each in case.iter("property")}
        if "engine" in said and "kind" in said:
            failed = case.find("failure") is not None or case.find("error") is not None
            answers[said["engine"] or "", said["kind"] or ""] = _FAILED if failed else said.get("answer") or ""
    if not answers:
        sys.exit(f"error: {path} has no results of verification/delete_readers/test_delete_readers.py")
    return answers


def page(answers: Mapping[tuple[str, str], str]) -> str:
    """Return the page. An answer that is neither "yes" nor "–" is the text of an error."""
    engines = list(dict.fromkeys(engine for engine, _ in answers))
    rows = [
        (version, deletes, *(_cell(answers.get((engine, kind), "–")) for engine in engines))
        for kind, (version, deletes) in KINDS.items()
    ]
    refusals = dict.fromkeys((engine, answer) for (engine, _), answer in answers.items() if _cell(answer) == "no")
    said = "".join(f"- {engine}: `{error}`\n" for engine, error in refusals)
    return _INTRODUCTION + table(("Format version", "Deletes", *engines), rows) + (f"\n{said}" if said else "")


def _cell(answer: str) -> str:
    return answer if answer in {"yes", "–"} else "no"


def main(arguments: Sequence[str]) -> int:
    """Write the page from a file; return 1 if an engine found wrong rows, and leave the page as it was."""
    if len(arguments) != 1:
        sys.exit("error: expected one file that `pytest --junitxml=FILE` has written")
    answers = read(Path(arguments[0]))
    wrong = [f"{engine}, {kind}" for (engine, kind), answer in answers.items() if answer == _FAILED]
    if wrong:
        sys.stdout.write(f"{PAGE.relative_to(ROOT)}: not written, since tests failed: {'; '.join(wrong)}\n")
        return 1
    PAGE.write_text(page(answers))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
