"""A Fluss cluster as programs of this machine, without Docker: its files, and what each of its servers is started with.

ZooKeeper, a coordinator and tablet servers. Each of Fluss's servers has two listeners: one without authentication, one
that demands SASL/PLAIN. The lake is Iceberg, by default behind a JDBC catalog that Spark shares by the same file.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.storage.fluss.rpc.calls.metadata import metadata
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.handshake import Credentials

USER: Final = Credentials("admin", "admin-secret")
"""Whom the secure listener lets in."""

_ZOOKEEPER: Final = "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain"
_COORDINATOR: Final = "org.apache.fluss.server.coordinator.CoordinatorServer"
_TABLET_SERVER: Final = "org.apache.fluss.server.tablet.TabletServer"
_OPENED: Final = ("java.lang", "java.nio", "java.util", "sun.nio.ch")
_LOG4J: Final = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = Out
appender.out.name = Out
appender.out.type = Console
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n
"""
_CATALOG_TABLES: Final = """\
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255),
    property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key)
);
"""
"""As Iceberg's JDBC catalog makes them, in its schema V1."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """One JVM of the cluster; `port` is that of its listener without authentication."""

    name: str
    folder: Path
    port: int
    command: Sequence[str]
    environment: Mapping[str, str]


class FlussClusterPrograms:
    """The servers of a cluster, in the order in which they start.

    Args:
        folder: of all their files.
        jars: with `lib` and `plugins`, as `tools/fetch_fluss_jars.py` makes it.
        ports: free ones, 3 and 2 for each tablet server.
        settings: of each server's server.yaml, over those here.
        jvm: options of each JVM.
    """

    def __init__(
        self,
        folder: Path,
        jars: Path,
        ports: Sequence[int],
        *,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = ("-Xmx512m",),
    ) -> None:
        zookeeper_port, coordinator_port, sasl_port, *tablet_ports = ports
        self.folder = folder
        self.remote_dir = folder / "remote"
        # Type hadoop, by `settings`, needs no more than the warehouse.
        self.lake_catalog = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/lake.db?busy_timeout=30000",
            # Made here: a coordinator that looks for the tables keeps its lock on them (Iceberg 1.10.1), and so every
            # commit away once it was restarted.
            "jdbc.init-catalog-tables": "false",
            "name": "fluss_lake",
            "jdbc.schema-version": "V1",
            "warehouse": f"file://{folder}/warehouse",
        }
        self._jars = jars
        self._jvm = jvm
        self._settings = dict(settings or {})
        self._zookeeper_port = zookeeper_port
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log4j2.properties").write_text(_LOG4J)
        with closing(sqlite3.connect(folder / "lake.db")) as catalog:
            catalog.executescript(_CATALOG_TABLES)
        self.zookeeper = self._zookeeper(zookeeper_port)
        self.coordinator = self.coordinator_at("coordinator", (coordinator_port, sasl_port))
        self.tablet_servers = [
            self._server(f"tablet-{n}", _TABLET_SERVER, pair, server_id=n)
            for n, pair in enumerate(zip(tablet_ports[::2], tablet_ports[1::2], strict=True))
        ]
        self.bootstrap = f"localhost:{coordinator_port}"
        self.sasl_bootstrap = f"localhost:{sasl_port}"

    def is_ready(self, tablet_servers: int | None = None) -> bool:
        """Whether the coordinator knows so many tablet servers, all by default: an open port is not enough."""
        expected = len(self.tablet_servers) if tablet_servers is None else tablet_servers
        with FlussClient(self.bootstrap, timeout=5) as client:
            try:
                known = client.call(metadata())
            except FlussTieringError:
                return False
        return known.coordinator is not None and len(known.tablet_servers) == expected

    def coordinator_at(self, name: str, ports: Sequence[int]) -> ServerProgram:
        """A coordinator on two ports of its own: while another one is the cluster's, it waits for its place."""
        return self._server(name, _COORDINATOR, ports)

    def _zookeeper(self, port: int) -> ServerProgram:
        folder = self.folder / "zookeeper"
        folder.mkdir(exist_ok=True)
        config = folder / "zoo.cfg"
        config.write_text(
            f"dataDir={folder}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=1000\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
        )
        return self._program("zookeeper", port, _ZOOKEEPER, str(config))

    def _server(self, name: str, main: str, ports: Sequence[int], *, server_id: int | None = None) -> ServerProgram:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        settings = {
            "zookeeper.address": f"localhost:{self._zookeeper_port}",
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
            "datalake.format": "iceberg",
            **{f"datalake.iceberg.{key}": value for key, value in self.lake_catalog.items()},
            **({} if server_id is None else {"tablet-server.id": str(server_id)}),
            **self._settings,
        }
        # Values stand unquoted: the parser would keep the quotes.
        (folder / "server.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        return self._program(name, ports[0], main, "--configDir", str(folder))

    def _program(self, name: str, port: int, main: str, *arguments: str) -> ServerProgram:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home, "bin", "java")) if home else shutil.which("java")
        command = [
            *(java or "java", *self._jvm, "-XX:+ExitOnOutOfMemoryError"),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
            f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties",
            *("-cp", f"{self._jars}/lib/*", main, *arguments),
        ]
        environment = {"FLUSS_PLUGINS_DIR": str(self._jars / "plugins")}
        return ServerProgram(name, self.folder / name, port, command, environment)


def accepts(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
