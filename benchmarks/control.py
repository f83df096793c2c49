"""Measures the control plane of a server with many tables: heartbeats, statuses, leases, metrics and a restart."""

from __future__ import annotations

import gc
import multiprocessing
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import mock

import numpy as np
import psutil
import pyarrow as pa

from fluss_tiering.client import TieringClient
from fluss_tiering.model.clock import SystemClock
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.core.store.note import StoreKind, StoreNote
from fluss_tiering.storage.embedded.storage import EmbeddedStorage

_KEYED: Final = TablePath("bench", "keyed")
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class ControlSizes:
    """The number of tables and leases, and how often each call is made."""

    tables: int = 10_000
    beating: int = 1_000
    heartbeats: int = 300
    lists: int = 100
    leases: int = 5_000
    batch: int = 500
    renewals: int = 50_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report: the measured value and its bound, if it has one."""

    work: str
    value: str
    bound: str = ""
    kept: bool = True


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server in a process of its own: a client of it, its address, and the port of its metrics."""

    client: TieringClient
    target: str
    metrics_port: int
    process: subprocess.Popen[str]


class ControlBenchmark:
    """Measures a server in a process of its own, over loopback gRPC, with the typed client."""

    def __init__(self, sizes: ControlSizes) -> None:
        self._sizes = sizes

    def run(self) -> Iterator[Figure]:
        """Yield the figures, one after the other."""
        sizes = self._sizes
        with tempfile.TemporaryDirectory(prefix="fluss-tiering-control-") as folder:
            data_dir = Path(folder) / "data"
            # A process of its own makes the tables: memory that the storage leaves behind would slow down the client.
            making = multiprocessing.get_context("spawn").Process(target=make_tables, args=(data_dir, sizes.tables))
            making.start()
            making.join()
            if making.exitcode:
                raise SystemExit(f"error: the tables could not be made: the process ended with {making.exitcode}")
            with running_server(data_dir) as running:
                client, process = running.client, running.process
                claimed = client.claim_tables([table_path(n) for n in range(sizes.beating)], "bench", None, "bench")
                claims = [claim for claim in claimed if isinstance(claim, Claim)]
                leases = _lease(client, sizes.leases)
                process.kill()
                process.wait()
            started = time.perf_counter()
            with running_server(data_dir) as running:
                ready = time.perf_counter() - started
                client = running.client
                # The garbage collector should not examine the benchmark's own objects while calls are timed.
                gc.collect()
                gc.freeze()
                yield Figure("ready after a restart", f"{ready:.2f} s", "< 5 s", ready < 5)
                yield from self._heartbeats(client, claims)
                yield from self._lists(client)
                yield from self._renewals(client, leases)
                yield from self._scrape(client, claims, running.metrics_port)
                memory = psutil.Process(running.process.pid).memory_info().rss / 1e6
                yield Figure("server's memory", f"{memory:.0f} MB", "", kept=True)

    def _heartbeats(self, client: TieringClient, claims: list[Claim]) -> Iterator[Figure]:
        p50, p99 = percentiles(lambda: beat(client, claims), self._sizes.heartbeats)
        work = f"heartbeat with {len(claims):,} tables"
        yield Figure(f"{work}, p50", f"{p50:.1f} ms", "", kept=True)
        yield Figure(f"{work}, p99", f"{p99:.1f} ms", "< 50 ms", p99 < 50)

    def _lists(self, client: TieringClient) -> Iterator[Figure]:
        def list_all() -> None:
            assert len(client.list_tiering_statuses()) >= self._sizes.tables

        p50, p99 = percentiles(list_all, self._sizes.lists)
        yield Figure(f"list {self._sizes.tables:,} statuses, p50", f"{p50:.1f} ms", "", kept=True)
        yield Figure(f"list {self._sizes.tables:,} statuses, p99", f"{p99:.1f} ms", "< 150 ms", p99 < 150)

    def _renewals(self, client: TieringClient, leases: list[str]) -> Iterator[Figure]:
        batches = [leases[at : at + self._sizes.batch] for at in range(0, len(leases), self._sizes.batch)]
        started, renewed = time.perf_counter(), 0
        while renewed < self._sizes.renewals:
            for batch in batches:
                answers = client.renew_leases(dict.fromkeys(batch, _HOUR_MS))
                assert all(isinstance(each, int) for each in answers.values())
                renewed += len(batch)
        rate = renewed / (time.perf_counter() - started)
        work = f"lease renewals, durable, {self._sizes.batch} a request"
        yield Figure(work, f"{rate:,.0f} /s", ">= 5,000 /s", rate >= 5_000)

    def _scrape(self, client: TieringClient, claims: list[Claim], port: int) -> Iterator[Figure]:
        def scrape() -> int:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                return len(answer.read())

        started = time.perf_counter()
        size = scrape()
        yield Figure(f"scrape, {size / 1e6:.1f} MB", f"{time.perf_counter() - started:.2f} s", "", kept=True)
        url = f"http://127.0.0.1:{port}/metrics"
        scraping = subprocess.Popen(
            [sys.executable, "-c", f"import urllib.request as u\nwhile True: u.urlopen({url!r}).read()"]
        )
        try:
            _, p99 = percentiles(lambda: beat(client, claims), self._sizes.heartbeats)
        finally:
            scraping.kill()
            scraping.wait()
        yield Figure("heartbeat p99 while it is scraped without a pause", f"{p99:.1f} ms", "", kept=True)


def table_path(number: int) -> TablePath:
    """Return the path of a table of the benchmark. Those with odd numbers have a primary key."""
    return TablePath("bench", f"table_{number}")


def make_tables(data_dir: Path, count: int) -> None:
    """Create tables as the server's storage does, but without a sync for each: a crash here loses nothing of value."""
    shutil.rmtree(data_dir, ignore_errors=True)
    columns = (Column("id", DataType.parse("BIGINT NOT NULL")), Column("name", DataType.parse("STRING")))
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}
    log, keyed = (
        TableDescriptor(columns, properties=properties),
        TableDescriptor(columns, ("id",), properties=properties),
    )
    with mock.patch("os.fsync"):
        storage = EmbeddedStorage.open(data_dir, clock=SystemClock())
        for number in range(count):
            storage.create_table(table_path(number), keyed if number % 2 else log)
        storage.create_table(_KEYED, keyed)
        storage.write(_KEYED, WriteKind.UPSERT, pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]}))
        storage.close()
        StoreNote(StoreKind.SQLITE, may_be_new=True).write(data_dir)


def _lease(client: TieringClient, count: int) -> list[str]:
    (taken,) = client.take_kv_snapshots([_KEYED]).values()
    snapshots = {each.bucket: each.snapshot_id for each in taken}
    leases = [f"bench/{number}" for number in range(count)]
    for lease_id in leases:
        client.acquire_lease(lease_id, _HOUR_MS, snapshots)
    return leases


def beat(client: TieringClient, claims: list[Claim]) -> None:
    entries = [HeartbeatEntry(claim.table_id, claim.tiering_epoch) for claim in claims]
    assert not client.heartbeat(tiering=entries).tiering_errors


def percentiles(call: Callable[[], None], times: int) -> tuple[float, float]:
    """Return p50 and p99 of a call, in milliseconds."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        taken.append((time.perf_counter() - started) * 1e3)
    return float(np.percentile(taken, 50)), float(np.percentile(taken, 99))


@contextmanager
def running_server(data_dir: Path) -> Iterator[RunningServer]:
    """Start a server, and yield it when it is ready."""
    command = [str(Path(sys.executable).with_name("fluss-tiering")), "serve", "--port", "0"]
    log = data_dir.parent / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen([*command, "--data-dir", str(data_dir)], stdout=output, stderr=output, text=True)
    try:
        port, metrics_port = _ports(process, log)
        target = f"127.0.0.1:{port}"
        with TieringClient(target) as client:
            yield RunningServer(client, target, metrics_port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _ports(process: subprocess.Popen[str], log: Path) -> tuple[int, int]:
    deadline = time.monotonic() + 120
    while not (ready := re.search(r'"tiering server ready".* port=(\d+) metrics_port=(\d+)', log.read_text())):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"error: the server did not start: {log.read_text()}")
        time.sleep(0.01)
    return int(ready[1]), int(ready[2])
