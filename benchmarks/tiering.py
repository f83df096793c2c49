"""Measures rounds on the embedded storage in a running Spark session: the time of each round and of its stages."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import rows
from benchmarks.encode import bare_encode_seconds
from examples.flights.environment import use_local_jars
from examples.flights.processes import Processes
from examples.flights.server import start_server
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.model.table_options import LAKE_PARTITION_BY
from fluss_tiering.spark import application
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.round.progress import Progress
from fluss_tiering.spark.round.result import TableResult
from fluss_tiering.spark.startup.workers import local_workers_conf
from fluss_tiering.spark.submit import spark_conf

CORES: Final = 2
_PORT: Final = 9163


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows each benchmark writes."""

    log: int = 5_000_000
    new: int = 1_000
    keyed: int = 2_000_000
    upserted: int = 300_000
    deleted: int = 20_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One round. `load_seconds` is the time that writing its rows to the server took."""

    work: str
    result: TableResult
    load_seconds: float


class TieringBenchmark:
    """Runs the rounds in one session against one server."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._target = ""

    def run(self) -> tuple[float, list[Measured]]:
        """Return the rows per second of only encoding, and the rounds."""
        use_local_jars()
        with tempfile.TemporaryDirectory(prefix="fluss-tiering-bench-") as folder:
            bare = self._sizes.log / bare_encode_seconds(self._sizes.log, CORES, Path(folder))
            with server(Path(folder)) as (self._target, client), session() as spark:
                self._warm_up(client, spark)
                return bare, [*self._log_table(client, spark), *self._keyed_table(client, spark)]

    def _warm_up(self, client: TieringClient, spark: SparkSession) -> None:
        path = TablePath("bench", "warm_up")
        client.create_table(path, rows.descriptor(primary_key=True))
        for start in range(2):
            write(client, path, WriteKind.UPSERT, rows.batches(start * 5_000, 10_000))
            self._tier(spark, path)

    def _log_table(self, client: TieringClient, spark: SparkSession) -> Iterator[Measured]:
        path = TablePath("bench", "log_table")
        client.create_table(path, rows.descriptor(primary_key=False))
        seconds = write(client, path, WriteKind.APPEND, rows.batches(0, self._sizes.log))
        yield Measured("log table", self._tier(spark, path), seconds)
        yield Measured("empty round", self._tier(spark, path), 0.0)
        seconds = write(client, path, WriteKind.APPEND, rows.batches(self._sizes.log, self._sizes.new))
        yield Measured(f"{self._sizes.new:,} new rows", self._tier(spark, path), seconds)

    def _keyed_table(self, client: TieringClient, spark: SparkSession) -> Iterator[Measured]:
        path = TablePath("bench", "keyed_table")
        # As a large table should have it: then a task for each bucket finds the rows that a round deletes.
        by_bucket = {LAKE_PARTITION_BY.key: "bucket(4, id)"}
        client.create_table(path, rows.descriptor(primary_key=True, num_buckets=4, options=by_bucket))
        seconds = write(client, path, WriteKind.UPSERT, rows.batches(0, self._sizes.keyed))
        client.take_kv_snapshots([path])
        yield Measured("first snapshot", self._tier(spark, path), seconds)
        random = np.random.default_rng(1)
        touched = random.choice(self._sizes.keyed, self._sizes.upserted + self._sizes.deleted, replace=False)
        upserted, deleted = np.split(touched, [self._sizes.upserted])
        seconds = write(client, path, WriteKind.UPSERT, batches_of(upserted))
        seconds += write(client, path, WriteKind.DELETE, batches_of(deleted))
        yield Measured("round of changes", self._tier(spark, path), seconds)

    def _tier(self, spark: SparkSession, path: TablePath) -> TableResult:
        return tier(self._target, spark, path)


def batches_of(ids: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield rows with these ids, whose other values differ from those of the first rows."""
    for start in range(0, len(ids), rows.BATCH_ROWS):
        yield rows.batch_of(ids[start : start + rows.BATCH_ROWS], seed=2)


def write(client: TieringClient, path: TablePath, kind: WriteKind, batches: Iterator[pa.RecordBatch]) -> float:
    """Write rows and return how many seconds it took."""
    started = time.perf_counter()
    for _ in client.write_rows(path, kind, batches):
        pass
    return time.perf_counter() - started


def tier(target: str, spark: SparkSession, path: TablePath) -> TableResult:
    """Run a round of a table in a session."""
    options = TierOptions(server=target, tables=(path,))
    (result,) = application.run(options, spark, Progress())
    if result.failed:
        raise SystemExit(f"error: {path} was not tiered: {result.error}")
    return result


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, TieringClient]]:
    """Run a server with an embedded storage; yield its address and a client."""
    processes = Processes(folder / "run")
    try:
        target = start_server(processes, folder / "data", _PORT)
        with TieringClient(target) as client:
            yield target, client
    finally:
        processes.stop()


@contextmanager
def session() -> Iterator[SparkSession]:
    """Yield a Spark session with as many cores as the benchmark has. Its workers are those of the application."""
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = f"local[{CORES},4]"
    builder: Any = SparkSession.builder.master(master).appName("benchmark")
    settings = {**spark_conf(), **local_workers_conf(master, python)}
    builder = builder.config(map={**settings, "spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
