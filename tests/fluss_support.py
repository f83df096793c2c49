"""A real Fluss cluster for tests: ZooKeeper, a coordinator and tablet servers as processes, without Docker.

Each server has two listeners: one without authentication, one that demands SASL/PLAIN. Whatever happens to the test
run, a watchdog process ends the servers: it does so as soon as the pipe from the run to it closes.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import fetch_fluss_jars
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.storage.fluss.calls.metadata import metadata
from fluss_tiering.storage.fluss.client import FlussClient
from fluss_tiering.storage.fluss.handshake import Credentials

USER: Final = Credentials("admin", "admin-secret")

_ZOOKEEPER: Final = "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain"
_COORDINATOR: Final = "org.apache.fluss.server.coordinator.CoordinatorServer"
_TABLET_SERVER: Final = "org.apache.fluss.server.tablet.TabletServer"
_JVM: Final = (
    "-Xms64m",
    "-Xmx256m",
    # Tests are over before more threads or the optimising compiler pay.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.nio", "java.util", "sun.nio.ch")
    ),
)
_READY_S: Final = 90.0
_STOP_S: Final = 30.0
_LOG4J: Final = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = Out
appender.out.name = Out
appender.out.type = Console
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n
"""
_WATCHDOG: Final = """\
import os, signal, sys
pids = set()
for line in sys.stdin:
    pid = int(line)
    pids.add(pid) if pid > 0 else pids.discard(-pid)
for pid in pids:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class Watchdog:
    """Kills the processes that it was told of once this process is gone, however it went."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # Its own session: Ctrl-C is not for it.
            [sys.executable, "-c", _WATCHDOG],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        self._tell(pid)

    def forget(self, pid: int) -> None:
        self._tell(-pid)

    def end(self) -> None:
        """Kills what is still watched."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(10)

    def _tell(self, number: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()


class FlussServer:
    """One JVM of the cluster."""

    def __init__(self, folder: Path, name: str, command: Sequence[str], watchdog: Watchdog, port: int) -> None:
        self.name = name
        self.port = port
        self.log_file = folder / f"{name}.log"
        self._folder = folder
        self._command = command
        self._watchdog = watchdog
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        environment = {**os.environ, "FLUSS_PLUGINS_DIR": str(fetch_fluss_jars.PLUGINS)}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                # Ctrl-C is for the test run, which then stops the servers in their order.
                start_new_session=True,
            )
        self._watchdog.watch(self._process.pid)

    def stop(self) -> None:
        """Asks it to end, and kills it when it does not."""
        self._signal(signal.SIGTERM)
        assert self._process is not None
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._watchdog.forget(self._process.pid)

    def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(_STOP_S)
        self._watchdog.forget(self._process.pid)

    def pause(self) -> None:
        """It keeps its connections, and does nothing."""
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
    """Started by `with`; `settings` go into each server's server.yaml, over those here."""

    def __init__(self, folder: Path, *, tablet_servers: int = 2, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.remote_dir = folder / "remote"
        # A catalog that Spark shares by the same file. Type hadoop, by `settings`, needs no more than the warehouse.
        self.lake_catalog = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/lake.db",
            "name": "lake",
            "jdbc.schema-version": "V1",
            "warehouse": f"file://{folder}/warehouse",
        }
        self._settings = dict(settings or {})
        self._watchdog = Watchdog()
        zookeeper_port, coordinator_port, self._sasl_port, *ports = free_ports(3 + 2 * tablet_servers)
        self.zookeeper = self._zookeeper(zookeeper_port)
        self.coordinator = self._server(
            "coordinator", _COORDINATOR, zookeeper_port, (coordinator_port, self._sasl_port)
        )
        self.tablet_servers = [
            self._server(f"tablet-{n}", _TABLET_SERVER, zookeeper_port, (ports[2 * n], ports[2 * n + 1]), server_id=n)
            for n in range(tablet_servers)
        ]

    @property
    def servers(self) -> list[FlussServer]:
        return [self.coordinator, *self.tablet_servers]

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.coordinator.port}"

    @property
    def sasl_bootstrap(self) -> str:
        """The listener that demands credentials (`USER`)."""
        return f"localhost:{self._sasl_port}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        self.zookeeper.start()
        self._wait_for(lambda: accepts(self.zookeeper.port), "ZooKeeper")
        for server in self.servers:
            server.start()
        self.wait_until_ready()

    def stop(self) -> None:
        """Kills all: nothing of it is wanted any more, and in order it takes 5 s."""
        try:
            for server in [*self.servers, self.zookeeper]:
                if server.running:
                    server.kill()
        finally:
            self._watchdog.end()

    def wait_until_ready(self, tablet_servers: int | None = None) -> None:
        """Until the coordinator knows so many tablet servers, all by default: an open port is not enough."""
        expected = len(self.tablet_servers) if tablet_servers is None else tablet_servers
        with FlussClient(self.bootstrap, timeout=5) as client:

            def ready() -> bool:
                with contextlib.suppress(FlussTieringError):
                    known = client.call(metadata())
                    return known.coordinator is not None and len(known.tablet_servers) == expected
                return False

            self._wait_for(ready, "the cluster")

    def _wait_for(self, ready, what: str) -> None:
        deadline = time.monotonic() + _READY_S
        started = [server for server in [self.zookeeper, *self.servers] if server.running]
        while not ready():
            ended = [server.name for server in started if not server.running]
            if ended or time.monotonic() > deadline:
                tails = "\n".join(server.log_tail() for server in [self.zookeeper, *self.servers])
                raise RuntimeError(f"{what} is not ready (ended: {ended})\n{tails}")
            time.sleep(0.05)

    def _zookeeper(self, port: int) -> FlussServer:
        folder = self.folder / "zookeeper"
        folder.mkdir(parents=True)
        config = folder / "zoo.cfg"
        config.write_text(
            f"dataDir={folder}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=1000\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
        )
        return FlussServer(folder, "zookeeper", self._java(_ZOOKEEPER, str(config)), self._watchdog, port)

    def _server(
        self, name: str, main: str, zookeeper_port: int, ports: tuple[int, int], *, server_id: int | None = None
    ) -> FlussServer:
        folder = self.folder / name
        folder.mkdir()
        settings = {
            "zookeeper.address": f"localhost:{zookeeper_port}",
            # ZooKeeper takes no less than two ticks; a killed server's leaders move after it.
            "zookeeper.client.session-timeout": "6s",
            "bind.listeners": f"FLUSS://localhost:{ports[0]},SECURE://localhost:{ports[1]}",
            "security.protocol.map": "FLUSS:PLAINTEXT,SECURE:SASL",
            "internal.listener.name": "FLUSS",
            "security.sasl.enabled.mechanisms": "PLAIN",
            "security.sasl.plain.jaas.config": "org.apache.fluss.security.auth.sasl.plain.PlainLoginModule required "
            f'user_{USER.username}="{USER.password}";',
            "data.dir": f"{folder}/data",
            "remote.data.dir": f"file://{self.remote_dir}",
            "default.replication.factor": "1",
            "kv.snapshot.interval": "500ms",
            "kv.snapshot.num-retained": "1",
            "log.segment.file-size": "64kb",
            "remote.log.task-interval-duration": "1s",
            "datalake.format": "iceberg",
            **{f"datalake.iceberg.{key}": value for key, value in self.lake_catalog.items()},
            **({} if server_id is None else {"tablet-server.id": str(server_id)}),
            **self._settings,
        }
        # Values stand unquoted: the parser would keep the quotes.
        (folder / "server.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        return FlussServer(folder, name, self._java(main, "--configDir", str(folder)), self._watchdog, ports[0])

    def _java(self, main: str, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home, "bin", "java")) if home else shutil.which("java")
        log4j = self.folder / "log4j2.properties"
        log4j.write_text(_LOG4J)
        return [
            *(java or "java", *_JVM, f"-Dlog4j2.configurationFile={log4j}"),
            *("-cp", f"{fetch_fluss_jars.LIB}/*", main, *arguments),
        ]


def free_ports(count: int) -> list[int]:
    """Different ones, free a moment ago; below those that systems give to whoever asks for any."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.randrange(15_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as bound:
            bound.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
