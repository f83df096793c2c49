"""What was seen when a DAG run had ended, and the rules that it must keep whatever ended it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / ".cache" / "airflow-endings"
"""Where endings are kept: a file for each way and database, from which `tools/airflow_endings.py` makes a page."""
EITHER: Final = "either"
ROWS: Final = 1000
"""The number of rows of each table of a way."""


@dataclass(frozen=True)
class Lake:
    """What a reader of Iceberg that is not ours finds in the lake table.

    Attributes:
        rows: The number of rows.
        keys: The number of distinct keys.
        commits: The number of commits of rounds, by their ids in the summaries of snapshots.
    """

    rows: int = 0
    keys: int = 0
    commits: int = 0

    @property
    def is_tiered(self) -> bool:
        return self == Lake(ROWS, ROWS, 1)


@dataclass(frozen=True)
class Status:
    """The tiering status of a table: its state, its failures in a row and its last error."""

    state: str
    failures: int
    error: str | None


@dataclass
class Ending:
    """How one run ended.

    Attributes:
        group: The file of tests that has the way.
        order: The line of its test there.
        way: What happened, as a sentence without a full stop.
        database: The kind of Airflow's database.
        by_hand: Whether a person decided the state of the run.
        interruption: Whether the tables had no part in what happened.
        ends: The state in which the run must end; `EITHER` if both are right, and None if it is deleted.
        run: The state of the run; None if it was deleted.
        tasks: The state of each task, with the number of its tries.
        lake: The lake table of each table.
        statuses: The status of each table.
        told: The error of each failed task, as its log tells it.
        lease_seconds: The time from the end of the run until its lease was gone; None if it stayed.
        spark_seconds: The time for which processes of Spark ran on after the attempt was cancelled or, if it was not,
            after the run had ended; None if they stayed.
        cleared: The state of the run after its failed tasks were cleared; None if they were not.
        broken: The rules that were broken.
    """

    group: str
    order: int
    way: str
    database: str
    by_hand: bool
    interruption: bool
    ends: str | None
    run: str | None = None
    tasks: dict[str, str] = field(default_factory=dict)
    lake: dict[str, Lake] = field(default_factory=dict)
    statuses: dict[str, Status] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    lease_seconds: float | None = None
    spark_seconds: float | None = None
    cleared: str | None = None
    broken: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Note the rules that this ending breaks."""
        tiered = all(each.is_tiered for each in self.lake.values())
        rules = {
            f"the run ends as {self.ends}": self.ends in (self.run, EITHER),
            "no row is in the lake twice": all(each.rows == each.keys for each in self.lake.values()),
            "no round is committed twice": all(each.commits <= 1 for each in self.lake.values()),
            "a table is tiered as a whole or not at all": all(each.rows in (0, ROWS) for each in self.lake.values()),
            "a green run has tiered its tables": self.run != "success" or tiered or self.by_hand,
            "a run whose tables are tiered is green": self.run != "failed" or not tiered or self.by_hand,
            "the lease is released": self.lease_seconds is not None,
            "no Spark is left behind": self.spark_seconds is not None,
            "an interruption is no failure of a table": not self.interruption or self._failures == 0,
            "a failed run says why in one line, with the table": self.run != "failed" or self.by_hand or self._says_why,
        }
        self.broken += [rule for rule, kept in rules.items() if not kept and rule not in self.broken]

    def save(self, name: str) -> None:
        """Write the ending for the page."""
        folder = FOLDER / self.database
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(asdict(self), indent=2) + "\n")

    @property
    def _failures(self) -> int:
        return sum(each.failures for each in self.statuses.values())

    @property
    def _says_why(self) -> bool:
        # The command line of Spark names all tables, but says nothing about why it failed.
        lines = [line for text in self.told.values() for line in text.splitlines() if "--lease-id" not in line]
        return any(table in line for line in lines for table in self.lake)


def said(ending: Ending, text: str) -> bool:
    """Return whether the log of a failed task says this."""
    return any(text in each for each in ending.told.values())


def states(tasks: Mapping[str, str]) -> dict[str, str]:
    """Return the states of tasks without the numbers of their tries."""
    return {task: text.split(",")[0] for task, text in tasks.items()}
