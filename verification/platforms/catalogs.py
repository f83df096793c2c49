"""The lake catalogs: how each is started on this machine, what it is set to, and which settings are wrong."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from examples.ports import free_ports
from fetch_test_servers import AWS_BUNDLE, JavaServer, fetch, fetch_jar
from java_servers import RunningProgram, RunningServer
from platforms.programs import MOTO, moto, new_java
from platforms.running import CHECKSUMS, NOWHERE, Platform, Running
from platforms.token_proxy import TOKENS_PATH, TokenProxy
from postgres_support import Postgres, socket_of
from rest_support import RestCatalog
from s3_support import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tcp_proxy import TcpProxy

_POSTGRESQL: Final = "org.postgresql:postgresql:42.7.8"
_MARIADB: Final = "org.mariadb.jdbc:mariadb-java-client:3.5.7"
_NESSIE: Final = "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner"
_HIVE: Final = JavaServer(
    "hive-metastore-3.1.3",
    (
        "org.apache.hive:hive-standalone-metastore:3.1.3",
        "org.apache.hadoop:hadoop-client:3.3.6",
        "org.apache.derby:derby:10.14.2.0",
        "commons-cli:commons-cli:1.2",
        "commons-lang:commons-lang:2.6",
        "commons-logging:commons-logging:1.2",
        "commons-collections:commons-collections:3.2.2",
    ),
    "org.apache.hadoop.hive.metastore.HiveMetaStore",
)


@contextmanager
def _postgresql(folder: Path) -> Iterator[Running]:
    server = Postgres(folder)
    server.execute("CREATE ROLE lake LOGIN PASSWORD 'lake-secret'")
    server.execute("CREATE DATABASE lake OWNER lake")
    (server.folder / "pg_hba.conf").write_text("local lake lake scram-sha-256\nlocal all all trust\n")
    server.stop()
    server.start()
    # This server only has a socket in the file system, and Java only speaks to ports.
    try:
        with TcpProxy(socket_of(server.url)) as proxy:
            yield Running(
                {
                    "type": "jdbc",
                    "name": "lake",
                    "uri": f"jdbc:postgresql://127.0.0.1:{proxy.port}/lake",
                    "jdbc.user": "lake",
                    "jdbc.password": "lake-secret",
                    "jdbc.schema-version": "V1",
                    "warehouse": f"file:{folder / 'warehouse'}",
                },
                "PostgreSQL 16, with the JDBC driver 42.7.8",
                [_POSTGRESQL],
                wrong={
                    "password": {"jdbc.password": "wrong"},
                    "address": {"uri": f"jdbc:postgresql://{NOWHERE}/lake"},
                    "database": {"uri": f"jdbc:postgresql://127.0.0.1:{proxy.port}/nothing"},
                    "warehouse": {"warehouse": "file:/proc/nowhere"},
                },
                stop=server.stop,
                start=server.start,
            )
    finally:
        server.stop()


@contextmanager
def _mariadb(folder: Path) -> Iterator[Running]:
    program = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    if program is None:
        raise RuntimeError("this machine has no mariadbd: install mariadb-server")
    (port,) = free_ports(1)
    data, user = folder / "data", f"--user={getpass.getuser()}"
    subprocess.run(["mariadb-install-db", "--no-defaults", user, f"--datadir={data}"], check=True, capture_output=True)
    start = folder / "start.sql"
    start.write_text(
        "CREATE DATABASE IF NOT EXISTS lake;\n"
        "CREATE USER IF NOT EXISTS lake@'127.0.0.1' IDENTIFIED BY 'lake-secret';\n"
        "GRANT ALL ON lake.* TO lake@'127.0.0.1';\n"
    )
    command = [program, "--no-defaults", user, f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1"]
    command += [f"--socket={folder / 'socket'}", f"--init-file={start}", "--skip-name-resolve"]
    with RunningProgram("mariadb", folder, port, command) as server:
        uri = f"jdbc:mariadb://127.0.0.1:{port}"
        yield Running(
            {
                "type": "jdbc",
                "name": "lake",
                "uri": f"{uri}/lake",
                "jdbc.user": "lake",
                "jdbc.password": "lake-secret",
                "jdbc.schema-version": "V1",
                "warehouse": f"file:{folder / 'warehouse'}",
            },
            f"MariaDB 10.11, with the JDBC driver {_MARIADB.rpartition(':')[2]}",
            [_MARIADB],
            wrong={
                "password": {"jdbc.password": "wrong"},
                "address": {"uri": f"jdbc:mariadb://{NOWHERE}/lake"},
                "database": {"uri": f"{uri}/nothing"},
                "driver": {"uri": f"{uri.replace('mariadb', 'mysql')}/lake"},
            },
            stop=server.stop,
            start=server.start,
        )


@contextmanager
def _rest(folder: Path) -> Iterator[Running]:
    with RestCatalog(folder) as catalog:
        yield Running(
            {**catalog.properties, "name": "lake"},
            "the server of Iceberg's own tests, 1.10.0",
            wrong={"address": {"uri": f"http://{NOWHERE}"}, "path": {"uri": f"{catalog.properties['uri']}/nothing"}},
            stop=catalog.stop,
            start=catalog.start,
        )


@contextmanager
def _rest_oauth2(folder: Path) -> Iterator[Running]:
    with RestCatalog(folder) as catalog, TokenProxy(f"127.0.0.1:{catalog.port}", "lake:lake-secret") as proxy:
        yield Running(
            {
                **catalog.properties,
                "uri": proxy.endpoint,
                "name": "lake",
                "rest.auth.type": "oauth2",
                "credential": "lake:lake-secret",
                "oauth2-server-uri": f"{proxy.endpoint}{TOKENS_PATH}",
                "scope": "lake",
            },
            "the server of Iceberg's own tests 1.10.0, behind a proxy that asks for tokens of 20 s",
            wrong={"credential": {"credential": "lake:wrong"}, "no credential": {"credential": ""}},
        )


@contextmanager
def _nessie(folder: Path) -> Iterator[Running]:
    # Its versions are in memory, so that it is not ended in mid-round: all would be gone.
    with _nessie_server(folder) as port:
        yield Running(
            {
                "type": "nessie",
                "name": "lake",
                "uri": f"http://127.0.0.1:{port}/api/v2",
                "ref": "main",
                "warehouse": f"file:{folder / 'warehouse'}",
            },
            f"Nessie {_NESSIE.split(':')[2]}",
            wrong={"address": {"uri": f"http://{NOWHERE}/api/v2"}, "branch": {"ref": "nothing"}},
        )


@contextmanager
def _nessie_rest(folder: Path) -> Iterator[Running]:
    with S3Server(folder / "s3") as store:
        store.filesystem().create_dir("lake")
        options = "nessie.catalog.service.s3.default-options"
        settings = {
            "nessie.catalog.default-warehouse": "lake",
            "nessie.catalog.warehouses.lake.location": "s3://lake/warehouse",
            f"{options}.endpoint": f"http://127.0.0.1:{store.port}",
            f"{options}.region": REGION,
            f"{options}.path-style-access": "true",
            f"{options}.request-signing-enabled": "false",
            f"{options}.access-key": "urn:nessie-secret:quarkus:lake-keys",
            "lake-keys.name": ACCESS_KEY,
            "lake-keys.secret": SECRET_KEY,
        }
        with _nessie_server(folder / "nessie", settings) as port:
            yield Running(
                {
                    "type": "rest",
                    "name": "lake",
                    "uri": f"http://127.0.0.1:{port}/iceberg/main",
                    "s3.access-key-id": ACCESS_KEY,
                    "s3.secret-access-key": SECRET_KEY,
                },
                f"Nessie {_NESSIE.split(':')[2]}, S3Proxy 2.7.0",
                [AWS_BUNDLE],
                CHECKSUMS,
                {"warehouse": {"warehouse": "nothing"}, "address": {"uri": f"http://{NOWHERE}/iceberg"}},
            )


@contextmanager
def _nessie_server(folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[int]:
    port, other = free_ports(2)
    given = {"quarkus.http.port": str(port), "quarkus.management.port": str(other), **settings}
    command = [new_java(), "-Xmx400m", *(f"-D{key}={value}" for key, value in given.items())]
    with RunningProgram("nessie", folder, port, [*command, "-jar", str(fetch_jar(_NESSIE))]):
        yield port


@contextmanager
def _glue(folder: Path) -> Iterator[Running]:
    with moto(folder) as endpoint:
        yield Running(
            {
                "type": "glue",
                "name": "lake",
                "warehouse": "s3://lake/warehouse",
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "glue.endpoint": endpoint,
                "s3.endpoint": endpoint,
                "s3.path-style-access": "true",
                "client.region": REGION,
                "s3.access-key-id": "of-the-emulator",
                "s3.secret-access-key": "of-the-emulator",
            },
            f"the emulator moto {MOTO}",
            [AWS_BUNDLE],
            {"AWS_ACCESS_KEY_ID": "of-the-emulator", "AWS_SECRET_ACCESS_KEY": "of-the-emulator"},
            wrong={
                "address of Glue": {"glue.endpoint": f"http://{NOWHERE}"},
                "address of S3": {"s3.endpoint": f"http://{NOWHERE}"},
                "bucket": {"warehouse": "s3://nothing/warehouse"},
            },
        )


@contextmanager
def _hive(folder: Path, *, transactions: bool) -> Iterator[Running]:
    (port,) = free_ports(1)
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True)
    options = [
        f"-Djavax.jdo.option.ConnectionURL=jdbc:derby:;databaseName={folder}/derby;create=true",
        "-Dmetastore.client.capability.check=false",
        "-Dmetastore.schema.verification=false",
        "-Ddatanucleus.schema.autoCreateAll=true",
        f"-Dmetastore.warehouse.dir={warehouse}",
        "-Dmetastore.thrift.uris=",
        # Its default names a class that is not in the standalone metastore.
        "-Dmetastore.task.threads.always=org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "-Dmetastore.expression.proxy=org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
    ]
    options += [
        f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.lang", "java.net", "java.util", "java.nio")
    ]
    if transactions:
        fetch(_HIVE)
        tables = str(Path(__file__).with_name("HiveTables.java"))
        subprocess.run(["java", *options, "-cp", _HIVE.class_path, tables], check=True, capture_output=True)
    with RunningServer(_HIVE, folder, port, options=options, arguments=["-p", str(port)]) as server:
        yield Running(
            {
                "type": "hive",
                "name": "lake",
                "uri": f"thrift://127.0.0.1:{port}",
                "warehouse": f"file:{warehouse}",
            },
            f"Hive 3.1.3, with Derby and {'with' if transactions else 'without'} its transaction tables",
            wrong={"address": {"uri": f"thrift://{NOWHERE}"}},
            stop=server.stop,
            start=server.start,
        )


CATALOGS: Final = (
    Platform("postgresql", "JDBC catalog on PostgreSQL", _postgresql),
    Platform("mariadb", "JDBC catalog on MariaDB", _mariadb),
    Platform("rest", "REST catalog", _rest),
    Platform("rest-oauth2", "REST catalog with OAuth2", _rest_oauth2),
    Platform(
        "nessie",
        "Nessie",
        _nessie,
        refuses=dict.fromkeys(("expire", "clean"), "its tables have `gc.enabled=false`: its tool `nessie-gc` does it"),
    ),
    Platform(
        "nessie-rest",
        "Nessie's REST catalog, on S3",
        _nessie_rest,
        leaves_out=dict.fromkeys(
            ("compact", "expire", "clean", "maintain", "two drivers", "compaction beside rounds"),
            "not supported. This catalog shows only the newest snapshot of a table. After a compaction, by whomever, a "
            "round does not find the last round in the table's history, and refuses to go on. Use the type `nessie`",
        ),
    ),
    Platform("glue", "AWS Glue and S3", _glue),
    Platform("hive-lock", "Hive metastore", partial(_hive, transactions=True)),
    Platform(
        "hive",
        "Hive metastore without its lock",
        partial(_hive, transactions=False),
        options={"iceberg.engine.hive.lock-enabled": "false"},
        note="Without the lock, two drivers are safe only on a metastore that [has HIVE-26882](lake.md#catalogs), "
        "which this version has not.",
    ),
)
"""The lake catalogs, in the order of the page."""
