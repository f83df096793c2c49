"""Measures how long calls hold the control thread of a server with many tables, rounds, pins and old KV snapshots."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final
from unittest import mock

import pyarrow as pa

from benchmarks.control import Figure, make_tables, table_path
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableBucket, WriteKind
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.app import TieringServer
from fluss_tiering.server.core.threads import TurnWatch
from fluss_tiering.server.logs import configure_logs
from fluss_tiering.server.settings.server_settings import load_settings

_BOUND_MS: Final = 50
_HOUR_MS: Final = 3_600_000
_LEASES: Final = 10
_SNAPSHOT_TABLES: Final = 40


@dataclass(frozen=True, slots=True)
class TurnSizes:
    """The number of tables, of rounds of each table, of pinned KV snapshots, and of KV snapshots to collect."""

    tables: int = 10_000
    rounds: int = 100
    pins: int = 100_000
    collected: int = 40_000


def measure(scale: float) -> Iterator[Figure]:
    """Yield the longest turn of each call."""
    sizes = TurnSizes(
        max(100, int(10_000 * scale)), 100, max(100, int(100_000 * scale)), max(_SNAPSHOT_TABLES, int(40_000 * scale))
    )
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-turns-") as folder:
        data_dir = Path(folder) / "data"
        making = multiprocessing.get_context("spawn").Process(target=make_tables, args=(data_dir, sizes.tables))
        making.start()
        making.join()
        with _server(data_dir) as (client, _, _port):
            rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]})
            keyed = [table_path(number) for number in range(1, 2 * _SNAPSHOT_TABLES, 2)]
            for path in keyed:
                assert sum(client.write_rows(path, WriteKind.UPSERT, [rows])) == 1
            client.take_kv_snapshots(keyed)
            table_ids = {table.path: table.table_id for table in client.list_tables()}
        _add_rounds_and_pins(data_dir, list(table_ids.values()), sizes)
        snapshots = _add_snapshots(data_dir, sizes.collected)
        with _server(data_dir, kv_snapshot_interval="5s") as (client, turns, port):
            yield from _calls(client, turns, port, list(table_ids.values()), sizes)
            deadline = time.monotonic() + 1800
            while _count(data_dir) > snapshots and time.monotonic() < deadline:
                time.sleep(1)
            yield turns.figure(f"collect {sizes.collected:,} KV snapshots")


class _Turns:
    """The longest turns of the server since the last question."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def figure(self, work: str) -> Figure:
        self._connection.send("longest")
        name, seconds = self._connection.recv()
        return Figure(work, f"{seconds * 1e3:.0f} ms ({name})", f"< {_BOUND_MS} ms", seconds * 1e3 < _BOUND_MS)


def _calls(client: TieringClient, turns: _Turns, port: int, table_ids: list[int], sizes: TurnSizes) -> Iterator[Figure]:
    paths = [table_path(number) for number in range(sizes.tables)]
    claims: list[Claim] = []

    def claim() -> None:
        claims[:] = [each for each in client.claim_tables(paths, "bench", None, "bench") if isinstance(each, Claim)]

    def entries() -> list[HeartbeatEntry]:
        return [HeartbeatEntry(each.table_id, each.tiering_epoch) for each in claims]

    pinned = [TableBucket(table_id, 0) for table_id in table_ids[: sizes.pins // _LEASES]]
    calls: dict[str, Callable[[], object]] = {
        f"claim {sizes.tables:,} tables": claim,
        f"heartbeat with {sizes.tables:,} tables": lambda: client.heartbeat(tiering=entries()),
        f"finish {sizes.tables:,} rounds": lambda: client.heartbeat(finished=entries()),
        "claim them again": claim,
        "cancel their rounds": lambda: client.cancel_tiering("bench", None, "stop"),
        "resume them": lambda: client.resume_tables(paths),
        "list the rounds of one table": lambda: client.list_tiering_rounds(paths[7], limit=100),
        f"list {sizes.tables * 20:,} rounds": client.list_tiering_rounds,
        "the outcome of a lease": lambda: client.lease_outcome("bench"),
        "list all statuses": client.list_tiering_statuses,
        "list all tables": client.list_tables,
        f"list leases with {sizes.pins:,} pins": client.list_leases,
        "scrape": lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300).read(),
        "renew leases": lambda: client.renew_leases({f"pins {n}": _HOUR_MS for n in range(_LEASES)}),
        "release one pin": lambda: client.release_lease("pins 0", pinned[:1]),
        f"release {len(pinned):,} pins": lambda: client.release_lease("pins 0", pinned),
        f"drop a lease with {len(pinned):,} pins": lambda: client.drop_lease("pins 1"),
        f"acquire {min(10_000, len(pinned)):,} snapshots": lambda: client.acquire_lease(
            "more", _HOUR_MS, dict.fromkeys(_keyed(client, pinned)[:10_000], 0)
        ),
        "drop that lease": lambda: client.drop_lease("more"),
        "drop a table": lambda: client.drop_table(paths[9], drop_untiered=True),
    }
    for work, call in calls.items():
        turns.figure("before")
        call()
        yield turns.figure(work)


def _keyed(client: TieringClient, buckets: list[TableBucket]) -> list[TableBucket]:
    keyed = {table.table_id for table in client.list_tables() if table.has_primary_key}
    return [bucket for bucket in buckets if bucket.table_id in keyed]


def _add_rounds_and_pins(data_dir: Path, table_ids: list[int], sizes: TurnSizes) -> None:
    """Write what a server would have written in months."""
    now = int(time.time() * 1000)
    with closing(sqlite3.connect(data_dir / "server.db")) as database, database:
        statuses = database.execute("SELECT table_id, database_name, table_name FROM tiering_statuses")
        paths = {row[0]: row[1:] for row in statuses}
        database.execute("UPDATE tiering_statuses SET tiering_epoch = ?", (sizes.rounds,))
        database.executemany(
            "INSERT INTO tiering_rounds (table_id, tiering_epoch, database_name, table_name, state, lease_id, driver,"
            " start_time, end_time, rows, bytes, files, force_finished)"
            " VALUES (?, ?, ?, ?, 'Tiered', 'bench', 'bench', ?, ?, 1, 1, 1, 0)",
            (
                (table_id, epoch, *path, now + epoch, now + epoch)
                for table_id, path in paths.items()
                for epoch in range(1, sizes.rounds + 1)
            ),
        )
        database.executemany(
            "INSERT INTO kv_snapshot_leases VALUES (?, ?, ?, 0)",
            [(f"pins {number}", now, now + 24 * _HOUR_MS) for number in range(_LEASES)],
        )
        database.executemany(
            "INSERT INTO leased_snapshots VALUES (?, ?, -1, 0, 999999)",
            [(f"pins {n}", table_id) for n in range(_LEASES) for table_id in table_ids[: sizes.pins // _LEASES]],
        )


def _add_snapshots(data_dir: Path, count: int) -> int:
    """Add old KV snapshots, and return how many there are once the old ones are collected."""
    folders = sorted(data_dir.glob("tables/*/*/kv-0/snap-*"))
    assert len(folders) == _SNAPSHOT_TABLES
    for folder in folders:
        for number in range(1, count // len(folders) + 2):
            copy = folder.with_name(f"snap-{number}")
            copy.mkdir()
            for file in folder.iterdir():
                os.link(file, copy / file.name)
    return 2 * len(folders)


def _count(data_dir: Path) -> int:
    return sum(1 for _ in data_dir.glob("tables/*/*/kv-0/snap-*"))


@contextmanager
def _server(data_dir: Path, **settings: str) -> Iterator[tuple[TieringClient, _Turns, int]]:
    """Run a server in a process of its own, and yield a client, its turns, and the port of its metrics."""
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=_serve, args=(data_dir, settings, its))
    process.start()
    port, metrics_port = ours.recv()
    try:
        with TieringClient(f"127.0.0.1:{port}", timeout=300) as client:
            yield client, _Turns(ours), metrics_port
    finally:
        if process.pid is not None:
            os.kill(process.pid, signal.SIGTERM)
        process.join()


def _serve(data_dir: Path, settings: dict[str, str], connection: Connection) -> None:
    longest: list[tuple[float, str]] = []

    @contextmanager
    def turn(_watch: TurnWatch, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            longest.append((time.perf_counter() - began, name))

    def answer() -> None:
        while connection.recv():
            taken, longest[:] = list(longest), []
            seconds, name = max(taken, default=(0.0, "none"))
            connection.send((name, seconds))

    async def run() -> None:
        server = TieringServer(load_settings(data_dir=data_dir, port=0, **settings))
        await server.start()
        connection.send((server.port, server.metrics_port))
        threading.Thread(target=answer, daemon=True).start()
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        await stopped.wait()
        await server.stop()

    # Writing the log is a part of a turn.
    with (data_dir.parent / "server.log").open("a") as log, redirect_stdout(log), redirect_stderr(log):
        configure_logs("logfmt", "INFO")
        with mock.patch.object(TurnWatch, "turn", turn):
            asyncio.run(run())
