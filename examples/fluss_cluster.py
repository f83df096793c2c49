"""A Fluss cluster of programs on this machine, without Docker: its files and the command that starts each server.

The cluster has ZooKeeper, a coordinator and tablet servers. Each of Fluss's servers has two listeners: one needs no
authentication, the other one demands SASL/PLAIN. The lake is Iceberg. By default its catalog is a JDBC catalog in a
file that Spark opens too.
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
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.connection_steps import Credentials

USER: Final = Credentials("admin", "admin-secret")
"""The only user whom the secure listener accepts."""

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
"""The tables that Iceberg's JDBC catalog creates in its schema V1."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """The command of one JVM of the cluster.

    Attributes:
        name: The name of the server, which is also that of its folder.
        folder: The folder of its files.
        port: The port of the listener that needs no authentication.
        command: The program and its arguments.
        environment: The environment variables that are added to those of this process.
    """

    name: str
    folder: Path
    port: int
    command: Sequence[str]
    environment: Mapping[str, str]


class FlussClusterPrograms:
    """The servers of a cluster, in the order in which they start.

    Args:
        folder: The folder for the files of all servers.
        jars: The folder with `lib` and `plugins` that `tools/fetch_fluss_jars.py` fills.
        ports: Free ports: three, and two more for each tablet server.
        settings: Settings for the server.yaml of each server. They win over the settings here.
        jvm: The options of each JVM.
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
        # A catalog of the type hadoop, which `settings` may ask for, uses only the warehouse of these properties.
        self.lake_catalog = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/lake.db?busy_timeout=30000",
            # The tables are created below. A coordinator that looks for them keeps a lock on them (Iceberg 1.10.1),
            # so that no commit succeeds after the coordinator was restarted.
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
        """Return whether the coordinator knows this number of tablet servers, by default all of them.

        An open port says less: a server opens it before it serves.
        """
        expected = len(self.tablet_servers) if tablet_servers is None else tablet_servers
        with FlussClient(self.bootstrap, timeout=5) as client:
            try:
                known = client.call(metadata())
            except FlussTieringError:
                return False
        return known.coordinator is not None and len(known.tablet_servers) == expected

    def coordinator_at(self, name: str, ports: Sequence[int]) -> ServerProgram:
        """Return a further coordinator, which waits while another one leads the cluster."""
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
            # ZooKeeper accepts no less than two ticks. The leaders of a killed server move after this time.
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
            # Servers of Fluss 1.0 refuse all writes while the disk is fuller than this; 0.9.1 does not know it.
            "server.data-disk.write-limit-ratio": "1.0",
            "datalake.format": "iceberg",
            **{f"datalake.iceberg.{key}": value for key, value in self.lake_catalog.items()},
            **({} if server_id is None else {"tablet-server.id": str(server_id)}),
            **self._settings,
        }
        # The values have no quotes, because the parser would keep them.
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
    """Return whether a program listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
