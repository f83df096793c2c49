"""What tests of several packages use: a virtual clock, servers in threads and as processes, and tables."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

import pyarrow as pa

from fluss_tiering.client import TieringClient
from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringStats, TieringStatus
from fluss_tiering.server import app
from fluss_tiering.server.app import TieringServer
from fluss_tiering.server.components import ServerComponents, open_components
from fluss_tiering.server.settings.server_settings import load_settings
from waiting import WAIT_S

MINUTE = 60_000
HOUR = 60 * MINUTE

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])

_NUMBERS = itertools.count()

# A server collects garbage when it starts. In the process of a run of tests this takes half a second.
app.gc_tuning = SimpleNamespace(loading=nullcontext, release_all=lambda: None)  # type: ignore[assignment]


class VirtualClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms


class ServerThread:
    """A server in a thread of this process and on a free port, so that tests reach its clock and its components."""

    def __init__(self, data_dir: Path, *, clock: Clock | None = None, **settings: Any) -> None:
        self.data_dir = data_dir
        self._settings = load_settings(**{"data_dir": data_dir, "port": 0, "shutdown_grace": 1000, **settings})
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.server = TieringServer(self._settings, clock=clock)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.run(self.server.start())
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.run(self.server.stop())
        self._end_thread()

    def run(self, steps: Any) -> Any:
        """Run a coroutine in the server's event loop."""
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result(WAIT_S)

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class OpenServer(ServerThread):
    """A server whose components can be looked at."""

    components: ServerComponents

    def __enter__(self) -> Self:
        async def open_and_keep(*arguments: Any, **options: Any) -> ServerComponents:
            self.components = await open_components(*arguments, **options)
            return self.components

        with mock.patch.object(app, "open_components", open_and_keep):
            return super().__enter__()


class ServerProcess:
    """A server as a program, which tests may kill and start again on its data folder."""

    def __init__(
        self, folder: Path, *, data_dir: Path | None = None, program: Sequence[str] | None = None, **environment: str
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._program = program or (str(Path(sys.executable).with_name("fluss-tiering")),)
        self.data_dir = data_dir or folder / "data"
        self.log_file = folder / "server.log"
        self.port = 0
        self.metrics_port = 0
        self._environment = {
            **os.environ,
            "FLUSS_TIERING_SHUTDOWN_GRACE": "2s",
            "FLUSS_TIERING_METRICS_PORT": "0",
            **environment,
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        seen = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(*self._program, "serve"),
                    *("--data-dir", str(self.data_dir), "--port", str(self.port)),
                ],
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        deadline = time.monotonic() + WAIT_S
        begun = r'"tiering server (?:ready|waiting)".* port=(\d+) metrics_port=(\d*)'
        while not (ready := re.search(begun, self.log_file.read_text()[seen:])):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.log_file.read_text()[seen:])
            time.sleep(0.05)
        self.port, self.metrics_port = int(ready[1]), int(ready[2] or 0)
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask the server to stop, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


def descriptor(
    *,
    primary_key: bool = True,
    num_buckets: int = 1,
    freshness: str | None = "3min",
    tiered: bool = True,
    properties: Mapping[str, str] | None = None,
) -> TableDescriptor:
    """Return the descriptor of a table with an id and a name."""
    properties = {**(properties or {}), **({"table.datalake.enabled": "true"} if tiered else {})}
    if freshness is not None:
        properties["table.datalake.freshness"] = freshness
    return TableDescriptor(
        columns=(Column("id", DataType.parse("BIGINT NOT NULL")), Column("name", DataType.parse("STRING"))),
        primary_key=("id",) if primary_key else (),
        bucket_keys=("id",) if primary_key else (),
        num_buckets=num_buckets,
        properties=properties,
    )


def table_info(table_id: int, *, name: str | None = None, created_time: int = 0, **options: Any) -> TableInfo:
    """Return a table for tests of managers, which know no storage."""
    return TableInfo(table_id, TablePath("db", name or f"t{table_id}"), 1, descriptor(**options), created_time)


def new_path() -> TablePath:
    """Return a name that no other test uses."""
    return TablePath("db", f"t_{next(_NUMBERS)}")


def new_table(client: TieringClient, ids: Sequence[int] = (), **options: Any) -> TableInfo:
    """Create a table in the server, with rows of these ids."""
    info = client.create_table(new_path(), descriptor(**options))
    if ids:
        put(client, info, {each: f"name {each}" for each in ids})
    return info


def put(client: TieringClient, table: TableInfo, names: Mapping[int, str | None]) -> None:
    """Write rows."""
    rows = pa.table({"id": list(names), "name": list(names.values())}, schema=SCHEMA)
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    assert sum(client.write_rows(table.path, kind, [rows])) == len(names)


def refusal(call: Callable[[], object]) -> FlussTieringError:
    """Return the error with which a call is refused."""
    try:
        call()
    except FlussTieringError as error:
        return error
    raise AssertionError("the call was not refused")


def status(client: TieringClient, table: TableInfo) -> TieringStatus:
    """Return the status of a table."""
    (found,) = client.list_tiering_statuses(table.path)
    return found


def log_ends(client: TieringClient, table: TableInfo) -> dict[TableBucket, int]:
    """Return where the log of each bucket ends."""
    return {each.bucket: each.log_end_offset for each in client.list_buckets([table.path])[table.path]}


def claimed(client: TieringClient, table: TableInfo, lease_id: str = "by hand") -> Claim:
    """Claim a table, and return the claim."""
    (claim,) = client.claim_tables([table.path], lease_id, None, "driver-1")
    assert isinstance(claim, Claim), claim
    return claim


def tier(
    client: TieringClient, table: TableInfo, claim: Claim | None = None, stats: TieringStats | None = None
) -> None:
    """Register a lake snapshot with the whole log of a table and finish its round, which begins if it has no claim."""
    claim = claim or claimed(client, table)
    ends = log_ends(client, table)
    path = client.prepare_lake_snapshot(table, claim.tiering_epoch, ends)
    client.commit_lake_snapshot(table, claim.tiering_epoch, claim.tiering_epoch, ends, path, "commit")
    entry = HeartbeatEntry(table.table_id, claim.tiering_epoch, stats=stats)
    assert not client.heartbeat(finished=[entry]).finished_errors


def log_end(client: TieringClient, path: TablePath) -> int:
    """Return how many records the logs of all buckets of a table have had."""
    return sum(bucket.log_end_offset for bucket in client.list_buckets([path])[path])
