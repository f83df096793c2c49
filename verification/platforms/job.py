"""The whole job on one platform, whose Spark runs in this process. It prints a line of JSON for each step.

The rows of the lake are read by Spark's own reader of Iceberg, and compared with those of a plain dictionary.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from fluss_tiering import TablePath, TieringClient, WriteKind
from fluss_tiering.model.table import Column, DataType, TableDescriptor
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import application
from fluss_tiering.spark.audit.clean import clean_table
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.maintain import maintain_table
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.startup.jvm import driver_jvm_conf
from fluss_tiering.spark.startup.session import own_session
from fluss_tiering.spark.submit import JARS_VARIABLE
from matrix.one_round import Round, expect, server

_WRONG_S: Final = 240.0
_STARTED_S: Final = 120.0


class Job(Round):
    """A primary-key table on a platform."""

    def steps(self) -> dict[str, Callable[[], None]]:
        """Return the steps in their order."""
        return {
            "rounds": self.rounds,
            "verify": self.verify,
            "compact": self.compact,
            "expire": self.expire,
            "clean": self.clean,
            "maintain": self.maintain,
        }

    def clean(self) -> None:
        """List orphan files, of which there are none."""
        done = clean_table(self._spark, self._table, grace=timedelta(days=1), delete=True)
        expect(done.error is None, str(done.error))
        expect(not done.orphans, f"files that are needed were called orphans: {done.orphans}")

    def maintain(self) -> None:
        """Maintain the table, and leave out what its catalog forbids."""
        done = maintain_table(self._client, self._spark, self._table)
        expect(done.error is None, str(done.error))
        self._compare()

    def two_drivers(self) -> None:
        """Let two applications tier the table at the same time."""
        self._write(dict.fromkeys(range(2000, 3000), "by two"))
        command = [_program(), "tier", "--server", self._target, str(self._table.path)]
        drivers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
        told = [driver.communicate()[0].decode() for driver in drivers]
        expect(all(driver.returncode == 0 for driver in drivers), " | ".join(told))
        self._compare()

    def compaction_beside_a_round(self) -> None:
        """Compact the table while rounds change it."""
        with ThreadPoolExecutor(1) as threads:
            compaction = threads.submit(compact_table, self._spark, self._table, min_input_files=2)
            for number in range(3):
                self._write(dict.fromkeys(range(number * 100, number * 100 + 150), f"beside {number}"))
                self._tier()
            done = compaction.result()
        expect(done.error is None or "rounds or others changed" in done.error, str(done.error))
        self._compare()

    def killed_in_mid_round(self) -> None:
        """Let the platform be killed while a round runs, and started again: the next round has each row once."""
        self._write(dict.fromkeys(range(500, 900), "while it was away"))
        options = TierOptions(server=self._target, tables=(self._table.path,))
        round_of = threading.Thread(target=application.run, args=(options, self._spark))
        round_of.start()
        _wait_for(lambda: self._state() is not TieringState.TIERED, "the round begins")
        _ask("stop")
        time.sleep(2)
        _ask("start")
        round_of.join()
        self._tier()
        self._compare()

    def _state(self) -> TieringState:
        (status,) = self._client.list_tiering_statuses(self._table.path)
        return status.state


class LogJob(Job):
    """A log table on a platform."""

    def rounds(self) -> None:
        """Tier a first time, and again after more rows."""
        for start in (0, 1000):
            self._write({key: f"name {key}" for key in range(start, start + 1000)})
            self._tier()
            self._compare()

    def _descriptor(self, options: dict[str, str]) -> TableDescriptor:
        return TableDescriptor(super()._descriptor(options).columns, (), (), 2, options)

    def _write(self, rows: dict[int, str | None]) -> None:
        # A log keeps each row, so that a key that was written before would be there twice.
        super()._write({key + 10_000 if key in self._rows else key: value for key, value in rows.items()})

    def _send(self, kind: WriteKind, rows: dict[int, str | None]) -> None:
        super()._send(WriteKind.APPEND, rows)


def wrong_setting(folder: Path, properties: dict[str, str]) -> dict[str, Any]:
    """Tier a table of a server whose lake catalog has wrong properties, and return what came of it."""
    folder.mkdir()
    with server(folder, "-D", f"lake-catalog={json.dumps(properties)}") as target, TieringClient(target) as client:
        path = TablePath("shop", "wrong")
        columns = (Column("id", DataType.parse("BIGINT NOT NULL")),)
        client.create_table(path, TableDescriptor(columns, ("id",), ("id",), 1, {"table.datalake.enabled": "true"}))
        batch = pa.record_batch({"id": [1]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
        list(client.write_rows(path, WriteKind.UPSERT, [batch]))
        began = time.monotonic()
        command = [_program(), "tier", "--server", target, str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_WRONG_S, check=False)
        except subprocess.TimeoutExpired:
            return {"seconds": _WRONG_S, "told": f"nothing within {_WRONG_S:.0f} s", "right": False}
        seconds = time.monotonic() - began
        (status,) = client.list_tiering_statuses(path)
        pinned = [lease for lease in client.list_leases() if lease.snapshots]
        told = status.last_error or (done.stderr.strip().splitlines() or [""])[-1]
        is_right = status.state is TieringState.FAILED and done.returncode == 1 and "\n" not in told and not pinned
        return {"seconds": seconds, "told": told, "right": is_right}


def main() -> None:
    """Run the steps that standard input describes."""
    asked = json.loads(sys.stdin.readline())
    os.environ[JARS_VARIABLE] = ",".join(asked["jars"])
    with tempfile.TemporaryDirectory(prefix="fluss-platform-") as name:
        folder = Path(name)
        with (
            server(folder, "-D", f"lake-catalog={json.dumps(asked['properties'])}") as target,
            TieringClient(target, timeout=300) as client,
        ):
            conf = {**driver_jvm_conf(), "spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false"}
            with own_session("local[2]", conf) as spark:
                _run(client, spark, target, asked)
        needed = os.environ[JARS_VARIABLE]
        if asked["own jars"]:
            os.environ[JARS_VARIABLE] = ",".join(each for each in asked["jars"] if each not in asked["own jars"])
            _tell(kind="wrong", step="jars left out", **wrong_setting(folder / "wrong-jars", asked["properties"]))
        os.environ[JARS_VARIABLE] = needed
        for what, properties in asked["wrong"].items():
            told = wrong_setting(folder / f"wrong-{what.replace(' ', '-')}", {**asked["properties"], **properties})
            _tell(kind="wrong", step=what, **told)


def _run(client: TieringClient, spark: SparkSession, target: str, asked: dict[str, Any]) -> None:
    options = asked["options"]
    for kind, job in {
        "position deletes": Job(client, spark, target, name="by_position", options=options),
        "deletion vectors": Job(
            client, spark, target, name="by_vector", options={"iceberg.format-version": "3", **options}
        ),
        "log table": LogJob(client, spark, target, name="log", options=options),
    }.items():
        steps = job.steps()
        if kind == "position deletes":
            steps["two drivers"] = job.two_drivers
            steps["compaction beside rounds"] = job.compaction_beside_a_round
            if asked["may be killed"]:
                steps["killed in mid-round"] = job.killed_in_mid_round
        for name, step in steps.items():
            if name in asked["leaves out"]:
                continue
            began = time.monotonic()
            told = None
            try:
                step()
            except Exception as error:  # noqa: BLE001 - every reason belongs into the page
                told = f"{type(error).__name__}: {error}".splitlines()[0]
            _tell(kind=kind, step=name, told=told, seconds=time.monotonic() - began)


def _ask(what: str) -> None:
    _tell(ask=what)
    sys.stdin.readline()


def _tell(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _wait_for(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _STARTED_S
    while not ready():
        expect(time.monotonic() < deadline, f"waited in vain: {what}")
        time.sleep(0.01)


def _program() -> str:
    return str(Path(sys.executable).with_name("fluss-tiering"))


if __name__ == "__main__":
    main()
