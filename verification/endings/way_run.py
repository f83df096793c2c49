"""A run of a DAG that a test ends in one way, with tables, a proxy and a connection of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from airflow_stack import AirflowStack
from ending import ROWS, Ending, Lake, Status
from holding_proxy import HoldingProxy
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType
from spark_processes import SparkProcesses

import judges
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind
from fluss_tiering.model.tiering import TieringState, TieringStatus
from waiting import wait_until

RUN_SECONDS: Final = 600.0
"""An upper bound for a run with its retries on a loaded machine."""
_AFTER_SECONDS: Final = 150.0
"""How long after a run its lease and its processes are waited for: longer than a round without heartbeats lasts."""
_POLL_SECONDS: Final = 0.7
_COMMIT_ID: Final = "fluss-tiering.commit-id"
_SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
_NUMBERS: Final = itertools.count()


class Way:
    """The run that a way ends.

    Args:
        stack: The programs.
        ending: What is noted about the end.
        dag_id: The DAG.
    """

    def __init__(self, stack: AirflowStack, ending: Ending, dag_id: str) -> None:
        self.stack = stack
        self.ending = ending
        self.dag_id = dag_id
        self.run_id = ""
        self.spark = SparkProcesses()
        self.proxy = HoldingProxy(stack.target).__enter__()
        self.tables: dict[str, int] = {}
        self._number = next(_NUMBERS)
        self.connection = f"fluss_way_{self._number}"
        self._lease_ids: set[str] = set()
        self._taken = ""

    # Before the run

    def new_table(self, *, primary_key: bool, freshness: str = "1h") -> str:
        """Create a table with rows, and return its name."""
        path = TablePath("ways", f"{'keyed' if primary_key else 'log'}_{self._number}_{len(self.tables)}")
        table = self.stack.client.create_table(
            path,
            TableDescriptor(
                (Column("id", DataType.parse("BIGINT NOT NULL")), Column("name", DataType.parse("STRING"))),
                primary_key=("id",) if primary_key else (),
                bucket_keys=("id",) if primary_key else (),
                num_buckets=2,
                properties={"table.datalake.enabled": "true", "table.datalake.freshness": freshness},
            ),
        )
        rows = pa.table({"id": range(ROWS), "name": [f"name {i}" for i in range(ROWS)]}, schema=_SCHEMA)
        list(self.stack.client.write_rows(path, WriteKind.UPSERT if primary_key else WriteKind.APPEND, [rows]))
        self.tables[str(path)] = table.table_id
        return str(path)

    def take_lake_table(self, table: str) -> None:
        """Create a lake table in the way of a table, with a schema that does not fit."""
        catalog = self._catalog(table)
        catalog.create_namespace_if_not_exists("ways")
        catalog.create_table(table, Schema(NestedField(1, "somebody_elses", StringType())))
        self._taken = table

    def give_back_lake_table(self) -> None:
        """Drop what `take_lake_table` created, as the person does who repairs the table."""
        self._catalog(self._taken).drop_table(self._taken)

    def wait_until_pending(self) -> None:
        """Return when all tables are pending, so that the main DAG picks them."""

        def pending() -> bool:
            return all(self.status(each).state is TieringState.PENDING for each in self.tables)

        wait_until(pending, every=0.3)

    def start(self, *, spark_master: str | None = None, **conf: Any) -> None:
        """Start the run through the proxy, with this Spark master if one is given."""
        airflow = self.stack.airflow
        if spark_master is not None:
            host, _, port = spark_master.rpartition(":")
            airflow.add_connection(f"{self.connection}_spark", int(port), kind="spark", host=host)
            conf["spark_conn_id"] = f"{self.connection}_spark"
        airflow.add_connection(self.connection, int(self.proxy.target.rpartition(":")[2]))
        airflow.wait_for_dag(self.dag_id)
        self.run_id = airflow.trigger(self.dag_id, {"fluss_conn_id": self.connection, **conf})

    # During the run

    def wait_until_tiering(self) -> None:
        """Return when the rounds of all tables that are held read rows, and so are in Tiering."""
        held = self.proxy.tables if self.proxy.tables is not None else self.tables.values()
        self.proxy.wait_until_held(*held)

    def wait_for_state(self, task_id: str, *expected: str, map_index: int = -1) -> None:
        def reached() -> bool:
            return self.state(task_id, map_index) in expected

        wait_until(reached, RUN_SECONDS, every=0.3, describe=lambda: f"{task_id}: {self._tasks()}")

    def state(self, task_id: str, map_index: int = -1) -> str | None:
        return self.stack.airflow.task_state(self.dag_id, self.run_id, task_id, map_index).state

    def try_number(self, task_id: str, map_index: int = -1) -> int:
        return self.stack.airflow.task_state(self.dag_id, self.run_id, task_id, map_index).try_number

    def pid(self, task_id: str, map_index: int = -1) -> int:
        """Return the process id of a running task."""
        pid = self.stack.airflow.task_state(self.dag_id, self.run_id, task_id, map_index).pid
        assert pid
        return pid

    def lease(self, acquire: str = "acquire", map_index: int = -1) -> dict[str, Any]:
        """Return the XCom of the acquire task."""
        lease = self.stack.airflow.xcom(self.dag_id, self.run_id, acquire, map_index)
        assert isinstance(lease, dict)
        self._lease_ids.add(lease["lease_id"])
        return lease

    # After the run

    def end(self) -> Ending:
        """Wait until the run has ended and nothing of it is left, note what is seen, and judge it."""
        ending = self.ending
        ending.lease_seconds, ending.spark_seconds = self._watch()
        exists = self.stack.airflow.has_run(self.dag_id, self.run_id)
        ending.run = self.stack.airflow.run_state(self.dag_id, self.run_id) if exists else None
        ending.tasks = self._tasks() if exists else {}
        ending.told = self._told() if exists else {}
        self.note_tables()
        ending.judge()
        return ending

    def note_tables(self) -> None:
        """Note what is in the lake, and the statuses."""
        for table in self.tables:
            self.ending.lake[table] = self.lake(table)
            status = self.status(table)
            error = status.last_error
            self.ending.statuses[table] = Status(status.state.value, status.consecutive_failures, error)

    def status(self, table: str) -> TieringStatus:
        (status,) = self.stack.client.list_tiering_statuses(TablePath.parse(table))
        return status

    def clear_failed(self) -> None:
        """Clear the failed tasks of the run, as a person does, and note how it then ends."""
        self.proxy.go()
        ending, airflow = self.ending, self.stack.airflow
        airflow.clear(self.dag_id, self.run_id, only_failed=True)
        if None in self._watch():
            ending.broken.append("nothing is left behind after clearing the failed tasks")
        ending.cleared = airflow.run_state(self.dag_id, self.run_id)
        lakes = {table: self.lake(table) for table in self.tables}
        if ending.cleared != "success":
            ending.broken.append(f"clearing the failed tasks recovers ({self._tasks()}: {self._told()})")
        if not all(each.is_tiered for each in lakes.values()):
            ending.broken.append(f"after clearing the failed tasks the tables are tiered once ({lakes})")

    def lake(self, table: str) -> Lake:
        """Read the lake table: its snapshots with pyiceberg, its rows with DuckDB."""
        try:
            found = self._catalog(table).load_table(table)
        except NoSuchTableError:
            return Lake()
        summaries = [each.summary.additional_properties for each in found.snapshots() if each.summary]
        commits = {each[_COMMIT_ID] for each in summaries if _COMMIT_ID in each}
        if not commits:
            return Lake()
        keys = judges.read(judges.DUCKDB, found.metadata_location, columns=["id"]).column("id").to_pylist()
        return Lake(len(keys), len(set(keys)), len(commits))

    def _catalog(self, table: str) -> SqlCatalog:
        (info,) = self.stack.client.get_tables([TablePath.parse(table)])
        properties = info.lake_catalog_properties
        uri = properties["uri"].removeprefix("jdbc:").split("?")[0].replace("sqlite:", "sqlite:///")
        return SqlCatalog(properties["name"], uri=uri, warehouse=properties["warehouse"])

    def close(self) -> None:
        """Leave nothing of the run."""
        self.proxy.go()
        airflow = self.stack.airflow
        if self.run_id and airflow.has_run(self.dag_id, self.run_id):
            if airflow.run_state(self.dag_id, self.run_id) not in ("success", "failed"):
                airflow.mark_run(self.dag_id, self.run_id, "failed")
            for lease in self._leases():
                self._lease_ids.add(lease["lease_id"])
        for each in self._lease_ids:
            self.spark.look(each)
        self.spark.kill()
        for connection in (self.connection, f"{self.connection}_spark"):
            airflow.remove_connection(connection)
        self.proxy.__exit__()
        for table in self.tables:
            self.stack.client.drop_table(TablePath.parse(table), drop_untiered=True)

    def _watch(self) -> tuple[float | None, float | None]:
        """Wait until the run has ended, its leases are gone and its processes have ended.

        Returns:
            The seconds that the leases and the processes outlived the run, or the cancellation of their attempt; None
            if they did not end.
        """
        ended: float | None = None
        released: dict[str, float] = {}
        quiet: dict[str, float] = {}
        cancelled: dict[str, float] = {}
        give_up_at = time.monotonic() + RUN_SECONDS
        while ended is None or len(released) + len(quiet) < 2 * len(self._lease_ids):
            now = time.monotonic()
            if now > give_up_at:
                break
            for lease in self._leases():
                self._lease_ids.add(lease["lease_id"])
                if self._is_cancelled(lease):
                    cancelled.setdefault(lease["lease_id"], now)
            for each in self._lease_ids:
                # What was over may begin again as long as the run goes on.
                _note(released, each, now, not self.stack.client.list_leases(each))
                _note(quiet, each, now, not self.spark.look(each))
            if ended is None and self._has_ended():
                ended, give_up_at = now, now + _AFTER_SECONDS
            time.sleep(_POLL_SECONDS)
        if ended is None:
            self.ending.broken.append(f"the run ends ({self._tasks()})")
            ended = time.monotonic()
        return self._longest(released, {}, ended), self._longest(quiet, cancelled, ended)

    def _is_cancelled(self, lease: Mapping[str, Any]) -> bool:
        outcome = self.stack.client.lease_outcome(lease["lease_id"], lease["attempt_token"])
        return outcome.cancelled_reason is not None

    def _longest(self, seen: Mapping[str, float], since: Mapping[str, float], ended: float) -> float | None:
        """Return the longest time until something was seen of a lease; None if it was not seen of one."""
        if seen.keys() < self._lease_ids:
            return None
        times = [seen[each] - since.get(each, ended) for each in self._lease_ids]
        return round(max(0.0, *times), 1) if times else 0.0

    def _leases(self) -> list[dict[str, Any]]:
        """Return what the acquire tasks of the run have returned."""
        airflow = self.stack.airflow
        if not airflow.has_run(self.dag_id, self.run_id):
            return []
        tasks = airflow.task_states(self.dag_id, self.run_id)
        acquires = [each for each in tasks if each.task_id.endswith("acquire")]
        values = [airflow.xcom(self.dag_id, self.run_id, each.task_id, each.map_index) for each in acquires]
        return [value for value in values if isinstance(value, dict)]

    def _has_ended(self) -> bool:
        airflow = self.stack.airflow
        if not airflow.has_run(self.dag_id, self.run_id):
            return True
        return airflow.run_state(self.dag_id, self.run_id) in ("success", "failed")

    def _tasks(self) -> dict[str, str]:
        found = self.stack.airflow.task_states(self.dag_id, self.run_id)
        return {
            each.task_id + (f" {each.map_index}" if each.map_index >= 0 else ""): f"{each.state}, try {each.try_number}"
            for each in sorted(found, key=lambda each: (each.task_id, each.map_index))
        }

    def _told(self) -> dict[str, str]:
        """Return the error in the log of the last try of each failed task."""
        told = {}
        for each in self.stack.airflow.task_states(self.dag_id, self.run_id):
            if each.state == "failed":
                events = self.stack.airflow.log_events(
                    self.dag_id, self.run_id, each.task_id, each.try_number, each.map_index
                )
                told[each.task_id + (f" {each.map_index}" if each.map_index >= 0 else "")] = _error_of(events)
        return told


def _note(seen: dict[str, float], lease_id: str, now: float, is_so: bool) -> None:
    """Note the moment since which something is so without a break."""
    if is_so:
        seen.setdefault(lease_id, now)
    else:
        seen.pop(lease_id, None)


def _error_of(events: list[dict[str, Any]]) -> str:
    """Return the text of the exception that ended a task, or else the last thing that its log calls an error."""
    text = ""
    for event in events:
        if details := event.get("error_detail"):
            return str(details[0]["exc_value"])
        if event.get("level") in ("error", "critical"):
            text = str(event.get("event"))
    return text
