"""Where plans run: a server, a driver with Spark and a lake, which live as long as they can."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from engine_support import ServerProcess
from fluss_support import Watchdog
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableInfo
from torture.processes import DriverProcess


class World:
    """The processes behind a run, as a context manager."""

    def __init__(self, folder: Path, defect: str | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lake").mkdir(exist_ok=True)
        self._catalog = folder / "lake" / "catalog.db"
        catalog = {
            "type": "jdbc",
            "name": "torture",
            "uri": f"jdbc:sqlite:{self._catalog}?busy_timeout=30000",
            "jdbc.schema-version": "V1",
            "warehouse": f"file:{folder}/lake/warehouse",
        }
        self.server = ServerProcess(
            folder / "server",
            FLUSS_TIERING_LAKE_CATALOG=json.dumps(catalog),
            FLUSS_TIERING_FAILURE_BACKOFF_BASE="1s",
            FLUSS_TIERING_FAILURE_BACKOFF_CAP="1s",
            FLUSS_TIERING_MAX_CONSECUTIVE_FAILURES="1000000",
        )
        self._watchdog = Watchdog()
        self.most_worker_bytes = 1 << 30
        self.driver = DriverProcess(folder, self._watchdog, defect)
        self._client: TieringClient | None = None

    def __enter__(self) -> Self:
        self._start_server()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.driver.kill()
        if self._client is not None:
            self._client.close()
        if self.server.process is not None and self.server.process.poll() is None:
            self.server.kill()
        self._watchdog.end()

    @property
    def client(self) -> TieringClient:
        assert self._client is not None
        return self._client

    def _start_server(self) -> None:
        self.server.start()
        assert self.server.process is not None
        self._watchdog.watch(self.server.process.pid)
        if self._client is None:
            self._client = TieringClient(self.server.target)

    def kill_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        """Start the server again, at the same address."""
        self._start_server()

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
