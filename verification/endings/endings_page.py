"""`make airflow-endings`: writes the page that says how runs of the main DAG end, from what its tests have seen.

The tests of this folder write a file for each way to end and each kind of database. Files of earlier runs count until
their test runs again, so a part of the tests may be run by itself.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from markdown_text import table

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / ".cache" / "airflow-endings"
PAGE: Final = ROOT / "docs" / "reference" / "ways-to-end.md"
DATABASES: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
GROUPS: Final = {
    "test_ways_of_submit": "The submit task and Spark",
    "test_ways_of_operators": "A submit by another operator",
    "test_ways_of_wait": "The sensor, and tasks that a person marks",
    "test_ways_of_clearing": "Tasks that a person clears",
    "test_ways_of_runs": "Runs that a person marks",
    "test_ways_of_outages": "Programs that are away for a while",
}
"""The file of tests -> the heading of what it shows."""
_HEADINGS: Final = (
    *("What happens", "Run", "Tasks", "In the lake", "Tables"),
    *("Lease", "Spark", "Cleared", "The log says"),
)
_LINE: Final = 240
"""The number of characters of an error that the page shows."""
_INTRODUCTION: Final = """# Ways to end

This page is made from the results of the tests, by `make airflow-endings`. Each line is a run of a DAG with the four
tasks of the [main DAG](airflow.md), with a real Airflow, real Spark in client mode and a real tiering server. A run
tiers two tables, one with a primary key and one log table, and something happens while their rounds are in Tiering.
Airflow's own database was {databases}.

The tests check these rules in each line. **A line says so where a rule was broken.**

- No row is in the lake twice, and no round is committed twice. DuckDB and pyiceberg read the lake.
- A run is green if and only if its tables are tiered, unless a person decided its state.
- The lease is released, and no process of Spark is left behind.
- What a person stopped, or what the infrastructure lost, is not counted as a failure of a table.
- A failed run says why in one line that names the table.

*Tables* tells the states of the two tables after the run, and how many failures in a row were counted. *Lease* is the
time from the end of the run until its lease was gone. *Spark* is the time for which processes of Spark ran on after the
attempt was cancelled or, if it was not, after the run had ended. Both are in whole seconds, rounded up, and depend on
the machine. *Cleared* is the state of the run after its failed tasks were cleared.

PostgreSQL has `idle_in_transaction_session_timeout = '30s'` for Airflow's database. Without it, a scheduler that is
killed alone may leave runs locked: the workers of its LocalExecutor go on and keep its connection open, and with it its
transaction. The next scheduler passes over these runs without a word. Set the timeout, too, or end the workers with the
scheduler.
"""


@dataclass(frozen=True)
class Way:
    """A way to end.

    Attributes:
        group: The file of tests that has it.
        what: What happened.
        endings: How it ended, by the kind of database.
    """

    group: str
    what: str
    endings: Mapping[str, Mapping[str, Any]]


def read(folder: Path) -> list[Way]:
    """Return all ways in the order of their tests.

    Raises:
        SystemExit: There are none.
    """
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for database in DATABASES:
        endings = [json.loads(path.read_text()) for path in sorted((folder / database).glob("*.json"))]
        for ending in sorted(endings, key=lambda each: each["order"]):
            found.setdefault((ending["group"], ending["way"]), {})[database] = ending
    if not found:
        sys.exit(f"error: {folder} has no endings; write them with `pytest -m long verification/endings`")
    return [Way(group, what, endings) for (group, what), endings in found.items()]


def page(ways: Sequence[Way]) -> str:
    """Return the page."""
    databases = [name for key, name in DATABASES.items() if any(key in way.endings for way in ways)]
    parts = [_INTRODUCTION.replace("{databases}", " or ".join(databases))]
    for group, heading in GROUPS.items():
        rows = [_row(way) for way in ways if way.group == group]
        if rows:
            parts.append(f"\n## {heading}\n{table(_HEADINGS, rows)}")
    return "".join(parts)


def _row(way: Way) -> tuple[str, ...]:
    broken = _each(way, lambda ending: "; ".join(ending["broken"]))
    return (
        way.what + (f". **Broken: {broken}**" if broken else ""),
        _each(way, lambda ending: ending["run"] or "deleted"),
        _each(way, _tasks),
        _each(way, _in_lake),
        _each(way, _tables),
        _longest(way, "lease_seconds"),
        _longest(way, "spark_seconds"),
        _each(way, lambda ending: ending["cleared"] or ""),
        _each(way, _told),
    )


def _each(way: Way, tell: Callable[[Mapping[str, Any]], str]) -> str:
    """Return what is to tell once if it is the same for all databases, or else for each of them."""
    told = {DATABASES[database]: tell(ending) for database, ending in way.endings.items()}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{database}: {text or '–'}" for database, text in told.items())


def _longest(way: Way, name: str) -> str:
    seconds = [ending[name] for ending in way.endings.values()]
    return "stays" if None in seconds else f"{math.ceil(max(seconds))} s"


def _tasks(ending: Mapping[str, Any]) -> str:
    """Return the tasks that did not succeed at the first try."""
    unusual = [f"`{task}` {text}" for task, text in ending["tasks"].items() if text != "success, try 1"]
    return "; ".join(unusual) or ("all succeed" if ending["tasks"] else "")


def _in_lake(ending: Mapping[str, Any]) -> str:
    lakes = ending["lake"].values()
    if any(lake["rows"] != lake["keys"] or lake["commits"] > 1 for lake in lakes):
        return "**twice**"
    tiered = sum(lake["commits"] for lake in lakes)
    if not lakes:
        return ""
    return {0: "nothing", len(lakes): "each row once"}.get(tiered, f"{tiered} of {len(lakes)} tables")


def _tables(ending: Mapping[str, Any]) -> str:
    """Return the states of the tables and their failures."""
    states = {each["state"]: None for each in ending["statuses"].values()}
    failures = sum(each["failures"] for each in ending["statuses"].values())
    return f"{' and '.join(states)}, {failures} failure{'' if failures == 1 else 's'}" if states else ""


def _told(ending: Mapping[str, Any]) -> str:
    """Return the first line of each error that is not one of Spark's command lines."""
    tasks: dict[str, list[str]] = {}
    for task, text in ending["told"].items():
        if text and "--lease-id" not in (line := text.splitlines()[0]):
            tasks.setdefault(_masked(line, ending), []).append(f"`{task}`")
    return "; ".join(f"{', '.join(names)}: {line}" for line, names in tasks.items())


def _masked(line: str, ending: Mapping[str, Any]) -> str:
    """Return the beginning of a line without what differs from run to run."""
    for number, name in enumerate(ending["lake"]):
        instead = ("shop.orders", "shop.clicks")[number % 2]
        for separator in (".", "`.`"):
            line = line.replace(name.replace(".", separator), instead.replace(".", separator))
    line = re.sub(r"DAG run \w+__[\w.+:-]*\w", "DAG run RUN", line)
    line = re.sub(r"(?<![\w:/])/[\w.-]\S+", "PATH", line)
    return line if len(line) <= _LINE else f"{line[:_LINE]}…"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(read(FOLDER)))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
