"""Runs our tiering: a server for the cluster that runs all the time, and a Spark application that is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from examples.flights.environment import use_local_jars
from examples.flights.processes import Processes, Started
from examples.flights.server import start_server
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import TieringRound, TieringStats

CORES: Final = 2


class OurTiering(Closing):
    """Runs `fluss-tiering serve --fluss` inside a `with` block, and starts `fluss-tiering tier --drain --follow`.

    Args:
        folder: The folder for the server's data and the logs.
        bootstrap: The address of the Fluss cluster.
    """

    name = "ours"

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._starts = 0
        self._server = Processes(folder / "server")
        self._driver: Processes | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        use_local_jars()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._stack.callback(self._server.stop)
        self._target = start_server(self._server, self._folder / "data", free_ports(1)[0], self._bootstrap)
        self._client = self._stack.enter_context(TieringClient(self._target))
        self._stack.callback(self.stop)
        return self

    def close(self) -> None:
        """End the application and the server."""
        self._stack.close()

    def start(self) -> None:
        """Start the application and return at once."""
        self._starts += 1
        self._driver = Processes(self._folder / f"run-{self._starts}")
        command = [
            *(str(Path(sys.executable).with_name("fluss-tiering")), "tier", "--drain", "--follow"),
            *("--master", f"local[{CORES},4]", "--server", self._target),
        ]
        self._driver.start("driver", command, {})

    def stop(self) -> None:
        """End the application."""
        if self._driver is not None:
            self._driver.stop()
            self._driver = None

    def pids(self) -> Sequence[int]:
        """Return the processes of the server and the application, without their children."""
        return [each.pid for each in self._all()]

    def claim_time(self, table: TableInfo, after: float) -> float | None:
        """Return when a round of the table was first claimed after that time, in seconds since the epoch, or None."""
        return min((each.start_time / 1000 for each in self._rounds(table, after)), default=None)

    def finish_time(self, table: TableInfo, after: float) -> float | None:
        """Return when a round that was claimed after that time ended, in seconds since the epoch, or None."""
        ends = (each.end_time / 1000 for each in self._rounds(table, after) if each.end_time is not None)
        return min(ends, default=None)

    def wrote(self, table: TableInfo) -> TieringStats:
        """Return what the table's newest round wrote; empty figures if none ended well."""
        newest, *_ = self._client.list_tiering_rounds(table.path)
        return newest.stats or TieringStats()

    def failure(self) -> str | None:
        """Return why a round failed, or the last output of an application that ended; None if all is well."""
        failed = next((each.error for each in self._client.list_tiering_rounds() if each.error), None)
        if failed is None and self._driver is not None and not self._driver.running:
            return "the application ended: " + (self._folder / f"run-{self._starts}" / "driver.log").read_text()[-2000:]
        return failed

    def _rounds(self, table: TableInfo, after: float) -> Iterable[TieringRound]:
        return (each for each in self._client.list_tiering_rounds(table.path) if each.start_time / 1000 > after)

    def _all(self) -> Sequence[Started]:
        return [*self._server.running, *(self._driver.running if self._driver is not None else ())]
