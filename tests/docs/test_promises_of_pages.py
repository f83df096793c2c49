"""Pages that say what is promised: each promise has its test, and the rights that a page names are those of calls."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import behaviour
from cases import cases
from fluss_rights import page

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "behaviour.md").read_text()
NUMBERS = [match["number"] for match in behaviour.ROW.finditer(PAGE)]
SEEDS = [*(f"L{n}" for n in range(1, 25)), *(f"S{n}" for n in range(1, 29)), *(f"K{n}" for n in range(1, 18))]


def test_every_number_is_promised_once() -> None:
    assert [number for number in NUMBERS if not number.startswith("#")] == SEEDS
    assert len(set(NUMBERS)) == len(NUMBERS) == len(SEEDS) + 12


@cases("number", NUMBERS)
@pytest.mark.slow
def test_every_promise_is_shown_by_a_test(number: str) -> None:
    assert behaviour.citations(ROOT).get(number)


def test_every_promise_is_implemented_somewhere() -> None:
    assert behaviour.missing_places(PAGE, ROOT) == []


@pytest.mark.system
def test_pages_that_are_made_from_the_code_are_current() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "docs.py"), "--check"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_site_shows_two_columns_and_folds_the_others() -> None:
    shown = behaviour.with_folded_columns(PAGE)
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {3}
    for row in behaviour.ROW.finditer(PAGE):
        (folded,) = [line for line in rows if line.startswith(f"| {row['number']} |")]
        assert all(row[part].strip() in folded for part in ("text", "where", "shown"))
    assert shown.count("<details>") == shown.count("</details>") == len(NUMBERS)


STATEMENT = re.compile(r"^CALL sys\.add_acl\(.*\);$", re.MULTILINE)


def test_the_statements_of_the_guide_are_those_of_the_page() -> None:
    tiering = page().partition("### Tiering, and reading")[2].partition("###")[0]
    guide = (ROOT / "docs" / "how-to" / "connect-a-cluster.md").read_text()
    assert STATEMENT.findall(guide) == STATEMENT.findall(tiering) != []
