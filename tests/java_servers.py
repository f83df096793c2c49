"""Servers of others that tests start: a JVM on a port of its own, ended with the test run whatever happens to it."""

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


class RunningServer:
    """Started by `with`; may be stopped and started again meanwhile.

    Args:
        server: fetched when it is not there.
        folder: of its files.
        port: that it listens on.
        options: of the JVM.
        arguments: of the program.
        environment: over this process's own.
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
    ) -> None:
        fetch(server)
        folder.mkdir(parents=True, exist_ok=True)
        command = ["java", *_JVM, *options, "-cp", server.class_path, server.main_class, *arguments]
        self.port = port
        self._watchdog = Watchdog()
        self._process = FlussServer(
            ServerProgram(server.name, folder, port, command, environment or {}), self._watchdog
        )

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
        """Starts it and waits until it listens."""
        self._process.start()
        deadline = time.monotonic() + _READY_S
        while not accepts(self.port):
            if not self._process.running or time.monotonic() > deadline:
                raise RuntimeError(f"not ready\n{self._process.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Kills it: it holds nothing that it would have to save."""
        if self._process.running:
            self._process.kill()
