"""Where plans run: servers, a driver with Spark and a lake, which live as long as they can."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from fault_proxy import FaultProxy
from fluss_support import FlussCluster, Watchdog
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableInfo
from torture.judging.fluss_reader import FlussReader
from torture.judging.process import JudgeProcess
from torture.lakes import Lake, newest_metadata
from torture.processes import DriverProcess
from torture.servers import TieringServers

TWO_SERVERS: Final = "two servers"
S3: Final = "s3"
PARTS: Final = {
    TWO_SERVERS: "Two servers share a PostgreSQL database, from which one of them is cut off.",
    S3: "The lake is on S3, which asks to slow down.",
}
"""What a world of the embedded storage may have beyond the usual, each with a sentence about it."""


class World:
    """The processes behind a run, as a context manager.

    Args:
        folder: The folder for all files.
        storage: "embedded", or "cluster" for a Fluss cluster.
        defect: The name of a planted defect; None for none.
        parts: Some of `PARTS`.
        fluss: The version of the cluster.

    Attributes:
        fluss_reader: Fluss's own reader of lakes, if there is a cluster.
        most_worker_bytes: The memory that a worker may take.
    """

    def __init__(
        self,
        folder: Path,
        storage: str = "embedded",
        defect: str | None = None,
        parts: Collection[str] = (),
        *,
        fluss: str = "0.9.1",
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.most_worker_bytes = 1 << 30
        self.cluster = FlussCluster(folder / "fluss", version=fluss) if storage == "cluster" else None
        self.fluss_reader: FlussReader | None = None
        self.judges = JudgeProcess()
        self._defect = defect
        self._parts = parts
        self._watchdog = Watchdog()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.callback(self._watchdog.end)
            if self.cluster is not None:
                self._stack.enter_context(self.cluster)
                self.fluss_reader = FlussReader(self.folder / "fluss-reader", self.cluster)
                self._stack.callback(self.fluss_reader.stop)
                storage = {"FLUSS_TIERING_FLUSS": self.cluster.bootstrap}
            self.lake = self._stack.enter_context(Lake(self.folder / "lake", on_s3=S3 in self._parts))
            if self.cluster is None:
                storage = {"FLUSS_TIERING_LAKE_CATALOG": json.dumps(self.lake.properties)}
            servers = TieringServers(self.folder, storage, self._watchdog, two=TWO_SERVERS in self._parts)
            self.servers = self._stack.enter_context(servers)
            self.client = self._stack.enter_context(TieringClient(self.target, timeout=180))
            self.proxy = self._stack.enter_context(FaultProxy(self.target))
            self.driver = DriverProcess(self.folder, self._watchdog, self._defect, self.lake.jars)
            self._stack.callback(self.driver.kill)
            self._stack.callback(self.judges.stop)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @property
    def target(self) -> str:
        """The address of the server, or of both servers."""
        return self.servers.target

    def start_again(self) -> None:
        """Begin anew after a plan was broken off: what it left in the driver and in the server must not go on."""
        self.driver.kill()
        self.servers.kill()
        self.servers.start()

    def metadata(self, table: TableInfo) -> str:
        """Return the path or the `file:` location of the lake table's newest metadata file.

        Raises:
            KeyError: There is no lake table.
        """
        if self.cluster is not None:
            return newest_metadata(self.folder / "fluss" / "lake.db", table.path)
        return self.lake.metadata(table.path)

    def call(self, do: str, **arguments: Any) -> Any:
        """Let the driver do something."""
        return self.driver.call(do, server=self.target, **arguments)
