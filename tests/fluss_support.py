"""A real Fluss cluster for tests: ZooKeeper, a coordinator and tablet servers as processes, without Docker.

Each server has two listeners: one needs no authentication, the other one demands SASL/PLAIN. A watchdog process ends
the servers when the pipe from the test run to it closes, so that they never outlive the run.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from examples.fluss_cluster import USER, FlussClusterPrograms, ServerProgram, accepts
from examples.ports import free_ports
from fetch_fluss_jars import VERSIONS

__all__ = ["USER", "FlussCluster", "FlussServer", "Watchdog", "accepts"]

_JVM: Final = (
    "-Xms64m",
    "-Xmx256m",
    # Tests are over before more threads or the optimising compiler pay.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)
_SETTINGS: Final = {
    "kv.snapshot.interval": "500ms",
    "kv.snapshot.num-retained": "1",
    "log.segment.file-size": "64kb",
    "remote.log.task-interval-duration": "1s",
}
_REGISTERED: Final = r"Registered table (\S+) for database (\S+)"
_LEADS: Final = r"Registered (Coordinator )?leader"
_NOTICED: Final = r"New table: (\S+) with id"
_FATAL: Final = b"ERROR FatalExitExceptionHandler FATAL: "
_READY_S: Final = 180.0
_STOP_S: Final = 30.0
_WATCHDOG: Final = """\
import sys
import psutil
watched = {}
for line in sys.stdin:
    pid = int(line)
    watched.pop(abs(pid), None)
    try:
        if pid > 0:
            watched[pid] = psutil.Process(pid)
    except psutil.NoSuchProcess:
        pass
    print(flush=True)
for process in watched.values():
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass
"""
"""psutil knows a process by its start, too. One that ended long ago may have left its number to another process."""


class Watchdog:
    """Kills the processes that it was told of once this process is gone, however it went."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # Its own session: Ctrl-C is not for it.
            [sys.executable, "-c", _WATCHDOG],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        self._tell(pid)

    def forget(self, pid: int) -> None:
        self._tell(-pid)

    def end(self) -> None:
        """Kill the processes that are still watched."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _tell(self, number: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        # Later the number could be that of another process.
        self._process.stdout.readline()


class FlussServer:
    """One JVM of the cluster."""

    def __init__(self, program: ServerProgram, watchdog: Watchdog) -> None:
        self.name = program.name
        self.port = program.port
        self.log_file = program.folder / f"{program.name}.log"
        self._program = program
        self._watchdog = watchdog
        self._process: subprocess.Popen[bytes] | None = None
        self._looked_through = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def has_crashed(self) -> bool:
        """Return whether the server ended, or is about to: an orderly stop after a fatal error takes seconds.

        Each call reads only what the log got since the last one.
        """
        with self.log_file.open("rb") as log:
            log.seek(self._looked_through)
            text = log.read()
        found = _FATAL in text
        if not found:
            self._looked_through += text.rfind(b"\n") + 1
        return found or not self.running

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._looked_through = log.tell()
            self._process = subprocess.Popen(
                self._program.command,
                cwd=self._program.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._program.environment},
                # Ctrl-C is for the test run, which then stops the servers in their order.
                start_new_session=True,
            )
        self._watchdog.watch(self._process.pid)

    def stop(self) -> None:
        """Ask the server to end, and kill it if it does not."""
        self._signal(signal.SIGTERM)
        assert self._process is not None
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._watchdog.forget(self._process.pid)

    def kill(self) -> None:
        """End the server with kill -9."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(_STOP_S)
        self._watchdog.forget(self._process.pid)

    def pause(self) -> None:
        """Stop the process for a while. It keeps its connections and does nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def log_tail(self) -> str:
        text = self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
        return f"--- {self.name}\n" + "\n".join(text.splitlines()[-30:])

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


class FlussCluster:
    """A cluster that `with` starts and ends.

    Args:
        folder: The folder for the files of all servers.
        version: The version of Fluss. Its jars are fetched.
        tablet_servers: The number of tablet servers.
        settings: Settings for the server.yaml of each server. They win over the settings here.
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: str = "0.9.1",
        tablet_servers: int = 2,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        VERSIONS[version].fetch()
        self._programs = programs = FlussClusterPrograms(
            folder,
            VERSIONS[version].jars,
            free_ports(3 + 2 * tablet_servers),
            settings={**_SETTINGS, **(settings or {})},
            jvm=_JVM,
        )
        self.version = version
        self.folder = folder
        self.remote_dir = programs.remote_dir
        self.lake_catalog = programs.lake_catalog
        self.bootstrap = programs.bootstrap
        self.sasl_bootstrap = programs.sasl_bootstrap
        """The address of the listener that demands the credentials `USER`."""
        self._looked_through = 0
        self._watchdog = Watchdog()
        self.zookeeper = FlussServer(programs.zookeeper, self._watchdog)
        self.coordinator = FlussServer(programs.coordinator, self._watchdog)
        self.second_coordinator = FlussServer(programs.coordinator_at("coordinator-2", free_ports(2)), self._watchdog)
        """A coordinator that is not started with the others. It waits while the first one leads."""
        self.tablet_servers = [FlussServer(program, self._watchdog) for program in programs.tablet_servers]

    @property
    def servers(self) -> list[FlussServer]:
        return [self.coordinator, *self.tablet_servers]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def is_led_by(self, coordinator: FlussServer) -> bool:
        """Return whether this coordinator is in ZooKeeper as the leader. An open port is not enough."""
        return accepts(coordinator.port) and bool(re.search(_LEADS, coordinator.log_file.read_text(errors="replace")))

    def missed_a_table(self) -> bool:
        """Return whether the coordinator has missed a table that it registered, which happens in Fluss 0.9.1.

        The table gets no leaders. If a partition was missed, no later table gets leaders either.
        """
        with self.coordinator.log_file.open(errors="replace") as log:
            log.seek(self._looked_through)
            text = log.read()
        registered = {f"{database}.{name}" for name, database in re.findall(_REGISTERED, text)}
        return "Failed to move table buckets" in text or bool(registered - set(re.findall(_NOTICED, text)))

    def has_lost_a_server(self) -> bool:
        """Return whether a server has ended.

        A tablet server of Fluss 1.0 ends if a partition or a table is dropped while it flushes the rows of a bucket.
        """
        return any(server.has_crashed() for server in self.servers)

    def heal(self) -> None:
        """Start crashed servers, and a coordinator that has missed a table. It then reads all tables again."""
        ill = [server for server in self.servers if server.has_crashed()]
        if self.missed_a_table() and self.coordinator not in ill:
            ill.append(self.coordinator)
        for server in ill:
            if server.running:
                server.kill()
        if self.coordinator in ill:
            self._looked_through = self.coordinator.log_file.stat().st_size
        for server in ill:
            server.start()
        self.wait_until_ready()

    def start(self) -> None:
        self.zookeeper.start()
        self._wait_for(lambda: accepts(self.zookeeper.port), "ZooKeeper")
        for server in self.servers:
            server.start()
        self.wait_until_ready()

    def stop(self) -> None:
        """Kill all servers: nothing of them is needed any more, and an orderly stop takes 5 s."""
        try:
            for server in [*self.servers, self.second_coordinator, self.zookeeper]:
                if server.running:
                    server.kill()
        finally:
            self._watchdog.end()

    def wait_until_ready(self, tablet_servers: int | None = None) -> None:
        """Wait until the coordinator knows this number of tablet servers, by default all of them."""
        self._wait_for(lambda: self._programs.is_ready(tablet_servers), "the cluster")

    def _wait_for(self, ready, what: str) -> None:
        deadline = time.monotonic() + _READY_S
        started = [server for server in [self.zookeeper, *self.servers] if server.running]
        while not ready():
            ended = [server.name for server in started if not server.running]
            if ended or time.monotonic() > deadline:
                tails = "\n".join(server.log_tail() for server in [self.zookeeper, *self.servers])
                raise RuntimeError(f"{what} is not ready (ended: {ended})\n{tails}")
            time.sleep(0.05)
