"""The main job: load, tier through Airflow and compare; then change, tier again and compare."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights import changes
from examples.flights.changes import Change
from examples.flights.compare import Comparison, compare, start_spark
from examples.flights.environment import DAG, Environment
from examples.flights.tables import TABLES
from fluss_tiering.model.tiering import TieringRound, TieringState

FRESHNESS: Final = "2s"
"""A short time, so that the tables are pending again when the second round starts."""

_REQUEST_ROWS: Final = 32_768
_ROUND_SECONDS: Final = 600.0
_PENDING_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table after one DAG run.

    Attributes:
        comparison: How the table in the lake compares with the expected rows.
        kind: Whether it is a log table or has a primary key.
        tiering_round: The last round that succeeded; None if there is none.
    """

    comparison: Comparison
    kind: str
    tiering_round: TieringRound | None


class MainJob:
    """Two rounds over the same tables.

    Args:
        environment: The environment. Its server runs before `load`, its Airflow before `tier`.
        console: The console on which the steps are printed.
    """

    def __init__(self, environment: Environment, console: Console) -> None:
        self._environment = environment
        self._console = console
        self._record = environment.folder / "written.json"
        self._written: list[str] = json.loads(self._record.read_text()) if self._record.exists() else []
        self._spark: SparkSession | None = None

    def load(self) -> None:
        """Create the tables and write every row of the source files, unless the folder was kept and has them."""
        if self._written:
            return
        first = changes.first_load()
        with self._environment.client() as client:
            for each in first:
                descriptor = each.table.descriptor(each.rows.schema, FRESHNESS)
                client.create_table(each.table.path, descriptor, ignore_if_exists=True)
        self._write("first_load", first)

    def change(self) -> None:
        """Write upserts, deletes and more flights."""
        self._write("later_changes", changes.later_changes())

    def tier(self) -> float:
        """Wait until all tables are pending, run the DAG once and return how many seconds it took.

        Raises:
            SystemExit: The DAG run failed. The message holds the errors of the tables.
        """
        self._wait_until_pending()
        api = self._environment.airflow.api
        started = time.monotonic()
        run_id = api.trigger(DAG)
        state = api.wait_for_run(DAG, run_id, _ROUND_SECONDS)
        seconds = time.monotonic() - started
        tasks = ", ".join(
            each.task_id if each.state == "success" else f"{each.task_id} ({each.state})"
            for each in api.task_states(DAG, run_id)
        )
        self._console.print(f"  DAG run {state} after {seconds:.0f} s: {tasks}", highlight=False)
        if state != "success":
            with self._environment.client() as client:
                errors = [
                    f"{each.path}: {each.last_error}" for each in client.list_tiering_statuses() if each.last_error
                ]
            raise SystemExit("\n".join(["error: the DAG run failed", *errors]))
        return seconds

    def compare(self) -> list[TableReport]:
        """Compare every table in the lake with the rows that were written."""
        with self._environment.client() as client:
            infos = client.get_tables([table.path for table in TABLES])
            rounds = {table.name: _last_tiered(client.list_tiering_rounds(table.path)) for table in TABLES}
        if self._spark is None:
            self._spark = start_spark(infos[0].lake_catalog_properties, self._environment.folder / "compare.log")
        scratch = self._environment.folder / "expected"
        scratch.mkdir(exist_ok=True)
        comparisons = compare(self._spark, self._expected(), scratch)
        return [
            TableReport(comparison, table.kind, rounds[table.name])
            for table, comparison in zip(TABLES, comparisons, strict=True)
        ]

    def close(self) -> None:
        """End the Spark session that reads the lake."""
        if self._spark is not None:
            # A signal to the whole process group ends Spark's JVM first. What else is running must still be ended.
            with suppress(Exception):
                self._spark.stop()

    def _write(self, name: str, to_write: list[Change]) -> None:
        """Write changes in order, and return when the last row is acknowledged."""
        progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeElapsedColumn(),
            console=self._console,
        )
        with self._environment.client() as client, progress:
            for change in to_write:
                task = progress.add_task(f"{change.kind} {change.table.path}", total=change.rows.num_rows)
                batches = change.rows.to_batches(max_chunksize=_REQUEST_ROWS)
                for acknowledged in client.write_rows(change.table.path, change.kind, batches):
                    progress.advance(task, acknowledged)
        self._written.append(name)
        self._record.write_text(json.dumps(self._written))

    def _expected(self) -> dict[str, pa.Table]:
        lists = {"first_load": changes.first_load(), "later_changes": changes.later_changes()}
        return changes.expected([change for name in self._written for change in lists[name]])

    def _wait_until_pending(self) -> None:
        deadline = time.monotonic() + _PENDING_SECONDS
        names = {table.path for table in TABLES}
        with self._environment.client() as client:
            while waiting := [
                each
                for each in client.list_tiering_statuses()
                if each.path in names and each.state is not TieringState.PENDING
            ]:
                if time.monotonic() > deadline:
                    states = ", ".join(f"{each.path} {each.state}" for each in waiting)
                    raise SystemExit(f"error: not pending after {_PENDING_SECONDS:.0f} s: {states}")
                time.sleep(_POLL_SECONDS)


def _last_tiered(rounds: Sequence[TieringRound]) -> TieringRound | None:
    ended = [each for each in rounds if each.state is TieringState.TIERED and each.stats is not None]
    return max(ended, key=lambda each: each.tiering_epoch, default=None)
