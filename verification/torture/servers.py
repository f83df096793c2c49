"""The tiering servers of a run: one, or two that share a data folder and a PostgreSQL whose network can be cut."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from engine_support import ServerProcess
from fluss_support import Watchdog
from metrics_support import scrape, value
from postgres_support import Postgres, socket_of, through
from tcp_proxy import TcpProxy

_ACTIVE: Final = "fluss_coordinator_activeCoordinatorCount"
_SETTINGS: Final = {
    "FLUSS_TIERING_FAILURE_BACKOFF_BASE": "1s",
    "FLUSS_TIERING_FAILURE_BACKOFF_CAP": "1s",
    "FLUSS_TIERING_MAX_CONSECUTIVE_FAILURES": "1000000",
}


class TieringServers:
    """The servers, as a context manager. They may be killed and started again.

    Args:
        folder: The folder for their files.
        settings: Settings of the servers, as environment variables.
        watchdog: Ends the servers if this process is killed.
        two: Whether there is a second server that waits to take over.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], watchdog: Watchdog, *, two: bool) -> None:
        self.data_dir = folder / "server" / "data"
        self.clock = folder / "clock"
        self._folder = folder
        self._watchdog = watchdog
        self._settings = {
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
            "TORTURE_CLOCK": str(self.clock),
            **_SETTINGS,
            **settings,
        }
        self._two = two
        self._stack = ExitStack()
        self._servers: list[ServerProcess] = []
        self.networks: list[TcpProxy] = []
        """The network between each server and PostgreSQL, if there are two servers."""

    def __enter__(self) -> Self:
        with self._stack:
            if self._two:
                url = self._postgres_database()
                self.networks = [self._stack.enter_context(TcpProxy(socket_of(url))) for _ in range(2)]
                stores = [{"FLUSS_TIERING_STORE_URL": through(network.port, url)} for network in self.networks]
            else:
                stores = [{}]
            for name, store in zip(("server", "second-server"), stores, strict=False):
                server = ServerProcess(
                    self._folder / name,
                    data_dir=self.data_dir,
                    program=(sys.executable, "-m", "torture.faults.server"),
                    **self._settings,
                    **store,
                )
                self._servers.append(server)
            self._stack.callback(self._end)
            self.start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @property
    def target(self) -> str:
        """The address of the server, or of both."""
        return ",".join(server.target for server in self._servers)

    def start(self) -> None:
        """Start the servers that do not run, at their addresses. One of them is active after that."""
        for server in self._servers:
            if server.process is None or server.process.poll() is not None:
                server.start()
                assert server.process is not None
                self._watchdog.watch(server.process.pid)
        self.serve()

    def kill(self) -> None:
        """Kill the active server."""
        self._active().kill()

    def stop(self) -> None:
        """Let all servers end in order."""
        for server in self._servers:
            server.stop()

    def suspend(self, seconds: float) -> None:
        """Suspend the active server for a while."""
        process = self._active().process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        self.serve()

    def cut(self, *, active: bool, seconds: float) -> None:
        """Cut the active server, or the other one, off the database for a while."""
        number = self._servers.index(self._active())
        network = self.networks[number if active else 1 - number]
        network.cut()
        time.sleep(seconds)
        network.mend()
        self.serve()

    def serve(self, seconds: float = 60) -> bool:
        """Wait until one of the servers is active, at most for so many seconds, and return whether one is."""
        deadline = time.monotonic() + seconds
        while self._find_active() is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def turn_clock(self, ms: int) -> None:
        """Set the servers' wall clock this much forward, or back if it is negative."""
        before = int(self.clock.read_text()) if self.clock.exists() else 0
        # No reader sees half a number.
        (new := self.clock.with_suffix(".new")).write_text(str(before + ms))
        new.replace(self.clock)

    def _active(self) -> ServerProcess:
        """Return the server that is active, or that was started first."""
        return self._find_active() or self._servers[0]

    def _find_active(self) -> ServerProcess | None:
        for server in self._servers:
            try:
                if len(self._servers) == 1 or value(scrape(server.metrics_port), _ACTIVE):
                    return server
            except OSError:
                continue
        return None

    def _postgres_database(self) -> str:
        # Outside of this run's folder, which PostgreSQL's own user may not read.
        folder = TemporaryDirectory(prefix="postgres-of-torture-", ignore_cleanup_errors=True)
        postgres = Postgres(Path(self._stack.enter_context(folder)))
        self._stack.callback(postgres.stop)
        self._watchdog.watch(int((postgres.folder / "postmaster.pid").read_text().split()[0]))
        return postgres.new_database()

    def _end(self) -> None:
        for server in self._servers:
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
                server.kill()
