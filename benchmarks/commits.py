"""Measures a commit of very many files by a driver whose JVM has a heap of 1 GiB, and how long publishing takes."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark.sql import SparkSession

from benchmarks import rows
from benchmarks.control import Figure
from examples.flights.environment import use_local_jars
from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.library import ask
from fluss_tiering.lake.iceberg.metadata.summary import OFFSETS_KEYS
from fluss_tiering.lake.protocol import LakeCommit, LakeTable
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.spark.submit import spark_conf

FILES: Final = 100_000
_BOUND_BYTES: Final = 1 << 30
_BUCKETS: Final = 16_384
_COLUMNS: Final = 11
_PROPERTIES: Final = {"table.datalake.enabled": "true", "table.datalake.commit-branch": "audit"}
_PUBLISHED: Final = 3
_PUBLISH_S: Final = 0.3


def measure(scale: float) -> Iterator[Figure]:
    """Yield the seconds of a commit, the peak of the JVM's heap, and of this process, and the seconds of a publish."""
    count = max(10, int(FILES * min(scale, 1)))
    use_local_jars()
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-commits-") as folder:
        spark = _session()
        try:
            table = TableInfo(
                1,
                TablePath("bench", "files"),
                1,
                replace(rows.descriptor(primary_key=False, num_buckets=_BUCKETS), properties=_PROPERTIES),
                0,
                {"type": "hadoop", "warehouse": f"file://{folder}"},
            )
            lake = IcebergCatalogs(spark).open_table(table)
            offsets = {TableBucket(1, number): 1_000_000 + number for number in range(_BUCKETS)}
            commit = LakeCommit(1, 1, str(uuid.uuid4()), "/offsets", offsets)
            started = time.perf_counter()
            lake.commit([_files(lake, count)], commit)
            seconds = time.perf_counter() - started
            heap = _peak_heap(spark)
            publish = min(_publish_seconds(spark, table, commit, count) for _ in range(_PUBLISHED))
        finally:
            spark.stop()
    own = _peak_of_this_process()
    yield Figure(f"commit of {count:,} files: time", f"{seconds:.1f} s", "", kept=True)
    yield Figure(
        f"publishing a table of {count:,} files: time",
        f"{publish:.2f} s",
        f"<= {_PUBLISH_S:g} s",
        publish <= _PUBLISH_S,
    )
    yield Figure("the driver's JVM heap, peak", f"{heap / 1e6:,.0f} MB", "<= 1 GiB", heap <= _BOUND_BYTES)
    yield Figure("the driver's Python process, peak", f"{own / 1e6:,.0f} MB", "<= 1 GiB", own <= _BOUND_BYTES)


def _publish_seconds(spark: SparkSession, table: TableInfo, commit: LakeCommit, count: int) -> float:
    """Commit one more file to the branch, and return how long it takes to find the table and to move main."""
    catalog = IcebergCatalogs(spark)
    lake = catalog.open_table(table)
    lake.commit([[_file(count)]], replace(commit, commit_id=str(uuid.uuid4())))
    started = time.perf_counter()
    found = catalog.find_table(table)
    assert found is not None
    ask(found.java_table, "publish", {"snapshot": None, "tag": None, "keys": OFFSETS_KEYS})
    return time.perf_counter() - started


def _files(lake: LakeTable, count: int) -> list[LakeFile]:
    """Return files that were never written, as the driver receives them from one job after the other."""
    found: list[LakeFile] = []
    for start in range(0, count, 4096):
        found += lake.packed([_file(number) for number in range(start, min(start + 4096, count))])
    return found


def _file(number: int) -> LakeFile:
    bucket = number % _BUCKETS
    numbers = dict.fromkeys(range(1, _COLUMNS + 1), 1000 + number)
    bounds = {column: (number * column).to_bytes(8, "little") for column in numbers}
    metrics = FileMetrics(1000, (4,), numbers, numbers, dict.fromkeys(numbers, 0), {}, bounds, bounds)
    location = f"memory://bench/data/__bucket={bucket}/{number:05d}-e1-{uuid.uuid4()}-0-00000.parquet"
    return LakeFile(FileContent.DATA, bucket, location, 1_000_000, metrics)


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder.master("local[2]").appName("benchmark")
    conf = {**spark_conf(), "spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "1g"}
    session: SparkSession = builder.config(map=conf).getOrCreate()
    return session


def _peak_heap(spark: SparkSession) -> int:
    """Return the sum of the peaks of the heap's pools, at most the whole heap."""
    factory = spark._jvm.java.lang.management.ManagementFactory  # noqa: SLF001
    pools = factory.getMemoryPoolMXBeans()
    return sum(pool.getPeakUsage().getUsed() for pool in pools if str(pool.getType().name()) == "HEAP")


def _peak_of_this_process() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return int(psutil.Process().memory_info().rss)
    (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) << 10
