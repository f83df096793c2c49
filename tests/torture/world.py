"""Where plans run: a server, a driver with Spark and a lake, which live as long as they can."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import fetch_fluss_jars
from engine_support import ServerProcess
from fault_proxy import FaultProxy
from fluss_support import FlussCluster, Watchdog
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableInfo
from torture.judging.process import JudgeProcess
from torture.processes import DriverProcess


class World:
    """The processes behind a run, as a context manager.

    Args:
        folder: The folder for all files.
        storage: "embedded", or "cluster" for a Fluss cluster.
        defect: The name of a planted defect; None for none.
    """

    def __init__(self, folder: Path, storage: str = "embedded", defect: str | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lake").mkdir(exist_ok=True)
        self._watchdog = Watchdog()
        self.most_worker_bytes = 1 << 30
        self.cluster = FlussCluster(folder / "fluss") if storage == "cluster" else None
        if self.cluster is None:
            self._catalog = folder / "lake" / "catalog.db"
            catalog = {
                "type": "jdbc",
                "name": "torture",
                "uri": f"jdbc:sqlite:{self._catalog}?busy_timeout=30000",
                "jdbc.schema-version": "V1",
                "warehouse": f"file:{folder}/lake/warehouse",
            }
            storage_settings = {"FLUSS_TIERING_LAKE_CATALOG": json.dumps(catalog)}
        else:
            self._catalog = folder / "fluss" / "lake.db"
            storage_settings = {"FLUSS_TIERING_FLUSS": self.cluster.bootstrap}
        self.server = ServerProcess(
            folder / "server",
            program=(sys.executable, "-m", "torture.faults.server"),
            PYTHONPATH=str(Path(__file__).resolve().parents[1]),
            TORTURE_CLOCK=str(folder / "clock"),
            FLUSS_TIERING_FAILURE_BACKOFF_BASE="1s",
            FLUSS_TIERING_FAILURE_BACKOFF_CAP="1s",
            FLUSS_TIERING_MAX_CONSECUTIVE_FAILURES="1000000",
            **storage_settings,
        )
        self.driver = DriverProcess(folder, self._watchdog, defect)
        self.judges = JudgeProcess()
        self._client: TieringClient | None = None
        self._proxy: FaultProxy | None = None

    def __enter__(self) -> Self:
        if self.cluster is not None:
            fetch_fluss_jars.fetch()
            self.cluster.start()
        self._start_server()
        self._proxy = FaultProxy(self.server.target).__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.judges.stop()
        self.driver.kill()
        if self._client is not None:
            self._client.close()
        if self.server.process is not None and self.server.process.poll() is None:
            self.server.kill()
        if self._proxy is not None:
            self._proxy.__exit__()
        if self.cluster is not None:
            self.cluster.stop()
        self._watchdog.end()

    @property
    def proxy(self) -> FaultProxy:
        """A proxy in front of the server, for faults of calls."""
        assert self._proxy is not None
        return self._proxy

    @property
    def client(self) -> TieringClient:
        assert self._client is not None
        return self._client

    def _start_server(self) -> None:
        self.server.start()
        assert self.server.process is not None
        self._watchdog.watch(self.server.process.pid)
        if self._client is None:
            self._client = TieringClient(self.server.target, timeout=180)

    def kill_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        """Start the server again, at the same address."""
        self._start_server()

    def start_again(self) -> None:
        """Begin anew after a plan was broken off: what it left in the driver and in the server must not go on."""
        self.driver.kill()
        self.kill_server()
        self.start_server()

    def turn_clock(self, ms: int) -> None:
        """Set the wall clock of the server this much forward, or back if it is negative."""
        file = self.folder / "clock"
        before = int(file.read_text()) if file.exists() else 0
        # No reader sees half a number.
        (new := self.folder / "clock.new").write_text(str(before + ms))
        new.replace(file)

    def metadata(self, table: TableInfo) -> str:
        """Return the location of the lake table's newest metadata file."""
        with closing(sqlite3.connect(self._catalog, timeout=30)) as catalog:
            (found,) = catalog.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
                (table.path.database, table.path.table),
            ).fetchone() or (None,)
        if found is None:
            raise KeyError(str(table.path))
        return str(found)

    def call(self, do: str, **arguments: Any) -> Any:
        """Let the driver do something."""
        return self.driver.call(do, server=self.server.target, **arguments)
