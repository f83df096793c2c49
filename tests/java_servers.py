"""Servers of other projects for tests: each is a JVM on a port of its own, which never outlives the test run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from examples.fluss_cluster import ServerProgram
from fetch_test_servers import JavaServer, fetch
from fluss_support import FlussServer, Watchdog, accepts

_READY_S: Final = 180.0
_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class RunningProgram:
    """A server that `with` starts and ends. It may be stopped and started again in between.

    Args:
        name: The name of the program.
        folder: The folder for its files.
        port: The port on which it listens.
        command: The program and its arguments.
        environment: Environment variables that are added to those of this process.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        port: int,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port
        self._watchdog = Watchdog()
        self._process = FlussServer(ServerProgram(name, folder, port, command, environment or {}), self._watchdog)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._watchdog.end()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.stop()
        finally:
            self._watchdog.end()

    def start(self) -> None:
        """Start the server and wait until it listens."""
        self._process.start()
        deadline = time.monotonic() + _READY_S
        while not accepts(self.port):
            if not self._process.running or time.monotonic() > deadline:
                raise RuntimeError(f"not ready\n{self._process.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill the server, which has nothing to save."""
        if self._process.running:
            self._process.kill()


class RunningServer(RunningProgram):
    """A server of Maven Central, which is fetched if it is not there.

    Args:
        server: The server.
        folder: The folder for its files.
        port: The port on which it listens.
        options: The options of the JVM.
        arguments: The arguments of the program.
        environment: Environment variables that are added to those of this process.
        jars: Jars that are added to those of the server.
    """

    def __init__(
        self,
        server: JavaServer,
        folder: Path,
        port: int,
        *,
        options: Sequence[str] = (),
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        jars: Sequence[Path] = (),
    ) -> None:
        fetch(server)
        class_path = ":".join([server.class_path, *map(str, jars)])
        command = ["java", *_JVM, *options, "-cp", class_path, server.main_class, *arguments]
        super().__init__(server.name, folder, port, command, environment)
