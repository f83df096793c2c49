"""Measures the floor of a small round: many primary-key tables with a few changed rows each, in one application."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import psutil
from pyspark.sql import SparkSession

from benchmarks import rows, tiering
from benchmarks.control import Figure
from examples.flights.environment import use_local_jars
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.spark import application
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.round.progress import Progress
from fluss_tiering.spark.round.result import RoundCost

_TABLES: Final = 100
_FIRST_ROWS: Final = 1000
_CHANGED_ROWS: Final = 100
_WARM_DRAINS: Final = 2
"""The JVM compiles what the first drains run. These are not counted."""
_DRAINS: Final = 3
_PUTS_PER_S: Final = 5
_SECONDS: Final = 120
_FRESHNESS: Final = "500ms"
_LOOK_S: Final = 0.05
_KINDS: Final = ("driver", "jvm", "server", "workers")


def measure(scale: float) -> Iterator[Figure]:
    """Yield rounds per second, CPU seconds of a round, and how far the lake is behind."""
    count = max(5, int(_TABLES * min(scale, 1)))
    use_local_jars()
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-small-") as text:
        folder = Path(text)
        with tiering.server(folder) as (target, client), tiering.session() as spark:
            drains = Drains(target, client, spark, make_tables(client, "small", count, "1d"))
            yield from drains.figures("first drain, 1,000 rows each", _FIRST_ROWS, 1)
            drains.run(_CHANGED_ROWS, _WARM_DRAINS)
            yield from drains.figures("100 changed rows each, warm", _CHANGED_ROWS, _DRAINS)
            fresh = make_tables(client, "fresh", count, _FRESHNESS)
            yield from _freshness(target, client, spark, fresh, max(10.0, _SECONDS * min(scale, 1)))


def make_tables(client: TieringClient, name: str, count: int, freshness: str) -> list[TablePath]:
    paths = [TablePath("bench", f"{name}_{number}") for number in range(count)]
    for path in paths:
        options = {"table.datalake.freshness": freshness}
        client.create_table(path, rows.descriptor(primary_key=True, num_buckets=1, options=options))
    return paths


@dataclass(frozen=True, slots=True)
class Drained:
    """What some drains took: rounds, seconds, CPU seconds of each kind of process, and seconds of each step."""

    rounds: int
    seconds: float
    cpu: dict[str, float]
    costs: list[RoundCost]


class Drains:
    """Writes rows to all tables and drains them, in a session that is there."""

    def __init__(self, target: str, client: TieringClient, spark: SparkSession, paths: list[TablePath]) -> None:
        self._target = target
        self._client = client
        self._spark = spark
        self._paths = paths

    def figures(self, work: str, row_count: int, drains: int) -> Iterator[Figure]:
        drained = self.run(row_count, drains)
        yield Figure(f"{len(self._paths)} tables, {work}: rounds/s", f"{drained.rounds / drained.seconds:.1f}")
        for kind, seconds in [("all", sum(drained.cpu.values())), *drained.cpu.items()]:
            yield Figure(f"  CPU s a round: {kind}", f"{seconds / drained.rounds:.3f}")
        for step in ("plan", "stage", "commit"):
            total = sum(getattr(cost, step) for cost in drained.costs)
            yield Figure(f"  wall s a round: {step}", f"{total / drained.rounds:.3f}")

    def run(self, row_count: int, drains: int) -> Drained:
        rounds, seconds, cpu, costs = 0, 0.0, dict.fromkeys(_KINDS, 0.0), list[RoundCost]()
        for number in range(drains):
            for path in self._paths:
                batch = rows.batch_of(np.arange(row_count), seed=number + 1)
                tiering.write(self._client, path, WriteKind.UPSERT, iter([batch]))
            before, began = _cpu_seconds(), time.perf_counter()
            results = application.run(
                TierOptions(server=self._target, tables=tuple(self._paths)), self._spark, Progress()
            )
            seconds += time.perf_counter() - began
            after = _cpu_seconds()
            cpu = {kind: cpu[kind] + after[kind] - before[kind] for kind in _KINDS}
            for result in results:
                if result.failed:
                    raise SystemExit(f"error: {result.path} was not tiered: {result.error}")
            costs += [result.cost for result in results]
            rounds += len(results)
        return Drained(rounds, seconds, cpu, costs)


def _cpu_seconds() -> dict[str, float]:
    """Return the CPU seconds so far of the server, the JVM, the Python workers and the driver."""
    seconds = dict.fromkeys(_KINDS, 0.0)
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times, words = process.cpu_times(), process.cmdline()
        except psutil.Error:
            continue
        seconds[_kind(process, me, words)] += times.user + times.system
    return seconds


def _kind(process: psutil.Process, me: psutil.Process, words: list[str]) -> str:
    if process == me:
        return "driver"
    if "serve" in words:
        return "server"
    return "jvm" if words and Path(words[0]).name == "java" else "workers"


def _freshness(
    target: str, client: TieringClient, spark: SparkSession, paths: list[TablePath], seconds: float
) -> Iterator[Figure]:
    """Yield percentiles of the time from an acknowledged put until the server knows a lake snapshot with its rows."""
    stop = threading.Event()
    options = TierOptions(
        server=target, tables=tuple(paths), drain=True, follow=True, time_budget=f"{seconds + 20:.0f}s"
    )
    thread = threading.Thread(target=application.run, args=(options, spark, Progress()), daemon=True)
    thread.start()
    waiting: dict[TablePath, list[tuple[int, float]]] = {path: [] for path in paths}
    lags: list[float] = []
    looking = threading.Thread(target=_look, args=(client, waiting, lags, stop), daemon=True)
    looking.start()
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        path = paths[number % len(paths)]
        batch = rows.batch_of(np.arange(20), seed=number + 1)
        tiering.write(client, path, WriteKind.UPSERT, iter([batch]))
        (info,) = client.list_buckets([path])[path]
        waiting[path].append((info.log_end_offset, time.monotonic()))
        number += 1
        time.sleep(max(0.0, began + number / _PUTS_PER_S - time.monotonic()))
    deadline = time.monotonic() + 30
    while any(waiting.values()) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    stop.set()
    looking.join()
    thread.join()
    lags.sort()
    for name, part in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0)):
        value = lags[min(len(lags) - 1, int(len(lags) * part))]
        yield Figure(f"put to lake snapshot, {_PUTS_PER_S} puts/s over {len(paths)} tables: {name}", f"{value:.2f} s")


def _look(
    client: TieringClient, waiting: dict[TablePath, list[tuple[int, float]]], lags: list[float], stop: threading.Event
) -> None:
    while not stop.is_set():
        for path, puts in waiting.items():
            if not puts:
                continue
            snapshot = client.lake_snapshot(path)
            now = time.monotonic()
            end = 0 if snapshot is None else max(snapshot.log_end_offsets.values(), default=0)
            while puts and puts[0][0] <= end:
                lags.append(now - puts.pop(0)[1])
        time.sleep(_LOOK_S)
