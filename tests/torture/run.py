"""Runs a plan: each step for real, the model beside it, and the judges after each round."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

import pyarrow as pa

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, WriteKind
from torture.arrow_values import table_of
from torture.faults.logs import cut_first_batch
from torture.faults.rounds import calls_met, meet, wait
from torture.judging.checks import Readable, Tally, WrongError, check_lake, check_scan
from torture.makers.rows import columns_of, partition_values, rows_of_step
from torture.model import TableModel
from torture.plan import Plan, PlannedTable, Step
from torture.processes import CommandFailedError, DriverDiedError
from torture.world import World

_NUMBERS = itertools.count(1)
TOO_MUCH_MEMORY: Final = "a worker uses too much memory"
_RETRIES: Final = 40
_PAUSE_S: Final = 0.5
_REPEATS: Final = 4
_SUMMARY_BYTES: Final = 9_500
"""What a snapshot may say of itself, however many buckets the table has."""
_LIMITED_ROUNDS: Final = 3
_LEASE_MS: Final = 600_000


class PlanRun:
    """One run of a plan, in a database of its own."""

    def __init__(self, world: World, plan: Plan, tally: Tally, *, most: int = 150) -> None:
        self._world = world
        self._plan = plan
        self._tally = tally
        self._most = most
        self._database = f"d{next(_NUMBERS)}_{plan.seed}"
        self._planned = {table.name: table for table in plan.tables}
        self._models: dict[str, TableModel] = {}
        self._infos: dict[str, TableInfo] = {}
        self._has_deletes: set[str] = set()
        self._lake_exists: set[str] = set()

    def run(self) -> None:
        """Run all steps.

        Raises:
            WrongError: something was not as it must be.
        """
        for table in self._plan.tables:
            self._create(table)
        for step in self._plan.steps:
            kind = step["do"]
            if "table" in step and step["table"] not in self._infos:
                continue
            self._tally.counts[f"steps: {kind}"] += 1
            with self._tally.timed(f"steps: {kind}"):
                getattr(self, f"_{kind}")(step)

    def _create(self, table: PlannedTable) -> None:
        try:
            self._infos[table.name] = self._world.client.create_table(table.path(self._database), table.descriptor())
        except FlussTieringError as error:
            if error.code is not ErrorCode.INVALID_TABLE:
                raise WrongError("a table cannot be created", error.message) from error
            self._tally.refused[f"table: {error.message[:110]}"] += 1
            return
        self._models[table.name] = TableModel(table)
        self._tally.counts["tables"] += 1
        self._tally.counts["columns"] += len(table.columns)

    def _write(self, step: Step) -> None:
        name, kind = step["table"], WriteKind(step["kind"])
        table, model = self._planned[name], self._models[name]
        rows = rows_of_step(table, step)
        columns = table.typed
        if kind is WriteKind.DELETE:
            places = columns_of(table, table.primary_key)
            batch = table_of([columns[place] for place in places], [[row[place] for place in places] for row in rows])
        else:
            batch = table_of(columns, rows)
        try:
            self._write_rows(name, kind, batch)
        except FlussTieringError as error:
            if error.code is not ErrorCode.INVALID_ROWS:
                raise WrongError("a write fails", f"{kind} to {table.name}: {error.message}") from error
            self._tally.refused[f"rows: {error.message[:110]}"] += 1
            return
        model.written(kind, rows)
        self._tally.counts["rows written"] += len(rows)

    def _write_rows(self, name: str, kind: WriteKind, batch: pa.Table) -> None:
        assert sum(self._world.client.write_rows(self._infos[name].path, kind, [batch])) == batch.num_rows

    def _snapshot(self, step: Step) -> None:
        self._world.client.take_kv_snapshots([self._infos[step["table"]].path])

    def _cut_log(self, step: Step) -> None:
        """Cut the beginning off the log of a table that has one bucket and was never tiered."""
        name = step["table"]
        self._world.server.stop()
        rows = cut_first_batch(self._world.server.data_dir, self._infos[name])
        self._world.start_server()
        if rows and not self._planned[name].primary_key:
            self._models[name].lost(rows)
            self._tally.counts["logs that begin later"] += 1

    def _acquired_again(self, step: Step) -> None:
        """Begin another attempt of a lease, and cancel it, while a round of the attempt before goes on."""
        name, driver = step["table"], self._world.driver
        marker = self._world.folder / f"marker-{next(_NUMBERS)}"
        fault = {"what": "stop", "when": "before", "step": "prepare", "marker": str(marker)}
        wanted = self._wanted([name], step)
        driver.begin("tier", server=self._world.server.target, fault=fault, **wanted)
        wait(lambda: marker.exists() or driver.has_answered())
        try:
            lease_id = wanted["options"]["lease_id"]
            again = self._world.client.acquire_lease(lease_id, _LEASE_MS, {}, allow_empty=True)
            if step.get("cancel"):
                self._world.client.cancel_tiering(lease_id, again.attempt_token, "another attempt was cleared")
        finally:
            driver.signal(signal.SIGCONT)
        (result,) = driver.end()
        if result["error"]:
            raise WrongError("a healthy round is cancelled by another attempt", result["error"])
        self._models[name].tiered()
        self._check(name, seed=0)

    def _drop_partition(self, step: Step) -> None:
        name = step["table"]
        table, model = self._planned[name], self._models[name]
        if model.pending:
            self._round([name], step, None)
        values = partition_values(table, step["partition"])
        self._world.client.drop_partition(self._infos[name].path, values, ignore_if_not_exists=True)
        model.dropped(values)

    def _alter(self, step: Step) -> None:
        name = step["table"]
        self._infos[name] = self._world.client.alter_table(
            self._infos[name].path, step.get("set", {}), step.get("reset", ())
        )

    def _server(self, step: Step) -> None:
        if step["what"] == "restart":
            self._world.server.stop()
        else:
            self._world.kill_server()
        self._world.start_server()

    def _lake_user(self, step: Step) -> None:
        """Set a property of a lake table, as a user may do in Spark."""
        name = step["table"]
        if name not in self._lake_exists:
            return
        text = f"ALTER TABLE {{table}} SET TBLPROPERTIES ('{step['key']}' = '{step['value']}')"
        try:
            self._world.call("sql", table=str(self._infos[name].path), text=text)
        except CommandFailedError as error:
            self._tally.refused[f"by Iceberg: {_class_of(str(error))[:90]}"] += 1

    def _maintain(self, step: Step) -> None:
        name = step["table"]
        if name not in self._lake_exists:
            return
        answer = self._world.call("maintain", table=str(self._infos[name].path), what=step["what"])
        if answer["error"] and not self._is_known_limit(name, step["what"]):
            raise WrongError(f"{step['what']} fails", answer["error"])
        self._check(name, seed=0)

    def _is_known_limit(self, name: str, what: str) -> bool:
        if what == "compact" and any("TIME(" in text for _, text in self._planned[name].columns):
            self._tally.left_out["Spark compacts no table with TIME"] += 1
            return True
        return False

    def _tier(self, step: Step) -> None:
        names = [name for name in step["tables"] if name in self._infos]
        if names:
            self._round(names, step, step.get("fault"))

    def _check_summary(self, name: str, metadata: str) -> bool:
        """Check the size of what the newest snapshot says of itself, and return whether there is one."""
        table = json.loads(Path(urlparse(metadata).path).read_text())
        newest = next(
            (each for each in table["snapshots"] if each["snapshot-id"] == table["current-snapshot-id"]), None
        )
        size = 0 if newest is None else sum(len(key) + len(value) for key, value in newest["summary"].items())
        self._tally.counts["largest summary in bytes"] = max(size, self._tally.counts["largest summary in bytes"])
        if size > _SUMMARY_BYTES:
            raise WrongError("a snapshot's summary is large", f"{size:,} bytes, at most {_SUMMARY_BYTES:,}")
        return newest is not None

    def _round(self, names: list[str], step: Step, fault: dict[str, str] | None) -> None:
        if fault is not None:
            self._faulty_round(names, step, fault)
        incomplete: list[str] = []
        for result in self._tier_again(names, step, faulty=fault is not None):
            name = result["table"].rpartition(".")[2]
            if result["error"]:
                raise WrongError(f"a round fails: {_class_of(result['error'])}", f"{name}: {result['error']}")
            self._tally.counts["rounds"] += 1
            if not result["complete"]:
                self._tally.counts["rounds that stopped at a limit"] += 1
                incomplete.append(name)
                continue
            model = self._models[name]
            model.tiered()
            peak = self._tally.counts["largest memory of a worker in bytes"]
            self._tally.counts["largest memory of a worker in bytes"] = max(peak, result["peak_bytes"])
            if result["peak_bytes"] > self._world.most_worker_bytes:
                raise WrongError(TOO_MUCH_MEMORY, f"{result['peak_bytes']:,} bytes")
        for name in names:
            if name not in incomplete:
                self._check(name, seed=step.get("seed", 0), light=bool(step.get("light")))
        if incomplete:
            # The last one of them has no limit.
            again = {**step, "left": step.get("left", _LIMITED_ROUNDS) - 1}
            self._round(incomplete, again if again["left"] else {**again, "options": {}}, None)

    def _tier_again(self, names: list[str], step: Step, *, faulty: bool) -> list[dict[str, Any]]:
        """Tier until no table fails. Only after a fault a table may fail a few times."""
        done: dict[str, dict[str, Any]] = {}
        failures: Counter[tuple[str, str | None]] = Counter()
        for _ in range(_RETRIES):
            wanted = [name for name in names if name not in done]
            if not wanted:
                break
            results = self._world.call("tier", fault=None, beside=self._beside(step), **self._wanted(wanted, step))
            for name, result in zip(wanted, results, strict=True):
                failures[name, result["error"]] += 1
                # The same error again and again does not come from the fault.
                if not result["error"] or not faulty or failures[name, result["error"]] > _REPEATS:
                    done[name] = result
            if len(done) < len(names):
                time.sleep(_PAUSE_S)
        return list(done.values())

    def _beside(self, step: Step) -> dict[str, str] | None:
        """Return what is maintained while rounds run; the lake table must exist."""
        beside = step.get("beside")
        if beside is None or beside["table"] not in self._lake_exists:
            return None
        self._tally.counts[f"{beside['what']} beside a round"] += 1
        return {**beside, "table": str(self._infos[beside["table"]].path)}

    def _wanted(self, names: Sequence[str], step: Step) -> dict[str, Any]:
        """Return which tables a driver tiers, under a new attempt of the plan's lease, as a task of Airflow does."""
        lease_id = f"torture/{self._database}"
        lease = self._world.client.acquire_lease(lease_id, _LEASE_MS, {}, allow_empty=True)
        return {
            "tables": [str(self._infos[name].path) for name in names],
            "options": {**step.get("options", {}), "lease_id": lease_id, "attempt_token": lease.attempt_token},
        }

    def _faulty_round(self, names: list[str], step: Step, fault: dict[str, str]) -> None:
        named = " ".join(str(fault[key]) for key in ("what", "when", "step", "method") if key in fault)
        self._tally.counts[f"faults: {named}"] += 1
        marker = self._world.folder / f"marker-{next(_NUMBERS)}"
        driver = self._world.driver
        planned = {**fault, "marker": str(marker)} if "step" in fault else None
        try:
            with calls_met(self._world, fault) as target:
                driver.begin("tier", server=target, fault=planned, **self._wanted(names, step))
                meet(self._world, fault, marker)
                driver.end()
        except (DriverDiedError, CommandFailedError):
            driver.kill()

    def _check(self, name: str, *, seed: int, light: bool = False) -> None:
        info, planned, model = self._infos[name], self._planned[name], self._models[name]
        path = str(info.path)
        try:
            metadata = self._world.metadata(info)
        except KeyError:
            if model.lake_rows():
                raise WrongError("there is no lake table", path) from None
            return
        if self._check_summary(name, metadata):
            self._lake_exists.add(name)
        out = self._world.folder / "read.arrow"

        def spark_read(columns: Any) -> pa.Table:
            self._world.call("read", table=path, columns=list(columns), out=str(out))
            with pa.OSFile(str(out)) as file:
                return pa.ipc.open_file(file).read_all()

        def spark_count(predicates: Any) -> list[int]:
            return list(self._world.call("count", table=path, predicates=list(predicates)))

        keys = [*planned.partition_keys, *([planned.bucket_key] if planned.bucket_key else [])]
        lake = Readable(
            planned.typed, metadata, bool(planned.primary_key), keys, self._world.judges, spark_read, spark_count
        )
        most = 0 if light else self._most
        check_lake(lake, model, self._tally, seed, spark=not light and seed % 3 == 0, most=most)
        if planned.primary_key and seed % 2 == 0 and not light:
            with self._world.client.scan(info) as scan:
                batches = list(scan)
            check_scan(planned.typed, pa.Table.from_batches(batches, arrow_schema(planned.typed)), model, self._tally)
        self._tally.counts["checks"] += 1


def _class_of(error: str) -> str:
    """Return what failures of one cause have in common."""
    words = [
        word for word in error.split() if not any(character.isdigit() or character in "'\"`/" for character in word)
    ]
    return " ".join(words[:12])
