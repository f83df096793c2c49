"""The page about ways to end says what the tests have seen."""

from __future__ import annotations

import json
from pathlib import Path

import endings_page
import pytest

KEYED, LOG = "ways.keyed_0_0", "ways.log_0_1"
TIERED = {"rows": 1000, "keys": 1000, "commits": 1}
GREEN = {
    "group": "test_ways_of_submit",
    "order": 1,
    "way": "Nothing happens",
    "run": "success",
    "tasks": {"submit": "success, try 1", "wait": "success, try 1"},
    "lake": {KEYED: TIERED, LOG: TIERED},
    "statuses": {KEYED: {"state": "Scheduled", "failures": 0}, LOG: {"state": "Scheduled", "failures": 0}},
    "told": {},
    "lease_seconds": 0.0,
    "spark_seconds": 1.2,
    "cleared": None,
    "broken": [],
}


def cells(folder: Path, **endings: dict) -> list[str]:
    for database, ending in endings.items():
        (folder / database).mkdir(exist_ok=True)
        (folder / database / "a.json").write_text(json.dumps(ending))
    page = endings_page.page(endings_page.read(folder))
    (line,) = [each for each in page.splitlines() if each.startswith("| Nothing happens")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_what_is_the_same_with_both_databases_is_told_once(tmp_path):
    slower = GREEN | {"spark_seconds": 2.1}
    assert cells(tmp_path, sqlite=GREEN, postgresql=slower) == [
        *("Nothing happens", "success", "all succeed", "each row once", "Scheduled, 0 failures", "0 s", "3 s", "", "")
    ]


def test_what_differs_is_told_of_each_database(tmp_path):
    red = GREEN | {
        "run": "failed",
        "tasks": {"submit": "success, try 1", "wait": "failed, try 2"},
        "lake": {KEYED: {"rows": 0, "keys": 0, "commits": 0}, LOG: TIERED},
        "statuses": {KEYED: {"state": "Failed", "failures": 1}, LOG: {"state": "Scheduled", "failures": 0}},
        "told": {
            "wait": f"1 of 2 failed: {KEYED} in DAG run manual__1: no /tmp/x\nmore",
            "submit": "a --lease-id x",
            "release": f"1 of 2 failed: {KEYED} in DAG run manual__1: no /tmp/x",
        },
        "lease_seconds": None,
        "cleared": "success",
        "broken": ["the lease is released"],
    }
    assert cells(tmp_path, sqlite=GREEN, postgresql=red) == [
        "Nothing happens. **Broken: SQLite: –; PostgreSQL: the lease is released**",
        "SQLite: success; PostgreSQL: failed",
        "SQLite: all succeed; PostgreSQL: `wait` failed, try 2",
        "SQLite: each row once; PostgreSQL: 1 of 2 tables",
        "SQLite: Scheduled, 0 failures; PostgreSQL: Failed and Scheduled, 1 failure",
        "stays",
        "2 s",
        "SQLite: –; PostgreSQL: success",
        "SQLite: –; PostgreSQL: `wait`, `release`: 1 of 2 failed: shop.orders in DAG run RUN: no PATH",
    ]


@pytest.mark.parametrize(
    "lake", [{"rows": 2000, "keys": 1000, "commits": 1}, {"rows": 1000, "keys": 1000, "commits": 2}]
)
def test_rows_or_commits_that_are_there_twice_are_told(tmp_path, lake):
    assert cells(tmp_path, sqlite=GREEN | {"lake": {KEYED: lake, LOG: TIERED}})[3] == "**twice**"


def test_a_folder_without_endings_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="has no endings"):
        endings_page.read(tmp_path)
