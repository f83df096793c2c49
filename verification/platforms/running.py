"""The platforms: how each is started on this machine, what its lake catalog is set to, and which settings are wrong."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from examples.ports import free_ports
from fetch_test_servers import AWS_BUNDLE, REST_AWS, SERVERS, JavaServer, fetch_jar
from java_servers import RunningProgram, RunningServer
from platforms.token_proxy import TOKENS_PATH, TokenProxy
from postgres_support import Postgres, socket_of
from rest_support import RestCatalog
from s3_support import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tcp_proxy import TcpProxy

_AZURE_BUNDLE: Final = "org.apache.iceberg:iceberg-azure-bundle:1.10.0"
_GCP_BUNDLE: Final = "org.apache.iceberg:iceberg-gcp-bundle:1.11.0"
_FAKE_GCS: Final = "github.com/fsouza/fake-gcs-server@v1.52.2"
_POSTGRESQL: Final = "org.postgresql:postgresql:42.7.8"
_MARIADB: Final = "org.mariadb.jdbc:mariadb-java-client:3.5.7"
_NESSIE: Final = "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner"
_MOTO: Final = "5.2.5"
_AZURITE: Final = "3.37.0"
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
_ACCOUNT: Final = "devstoreaccount1"
_ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that everybody's Azurite has, with the key that its documentation names."""
_UV: Final = str(Path(sys.executable).with_name("uv"))
_NOWHERE: Final = "127.0.0.1:9"
"""An address where nothing listens."""


@dataclass(frozen=True)
class Running:
    """A platform that runs.

    Attributes:
        properties: The properties of the lake catalog, as one sets them.
        jars: Artifacts that Spark needs beside Iceberg's runtime.
        environment: Environment variables of the driver and the executors.
        wrong: What may be set wrongly -> the properties that are then others.
        stop: Kills the platform; None if it is no program.
        start: Starts it again.
        version: The version of the program.
    """

    properties: dict[str, str]
    version: str
    jars: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stop: Callable[[], None] | None = None
    start: Callable[[], None] | None = None


@dataclass(frozen=True)
class Platform:
    """A platform that can be started.

    Attributes:
        name: The name for `--only`.
        title: The name in the page.
        run: Starts it with its files in a folder.
        refuses: Steps that cannot be -> why.
        leaves_out: Steps that are not run -> why.
        options: Options of the tables.
        note: What else whoever copies the settings must know.
    """

    name: str
    title: str
    run: Callable[[Path], AbstractContextManager[Running]]
    refuses: Mapping[str, str] = field(default_factory=dict)
    leaves_out: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


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
                    "address": {"uri": f"jdbc:postgresql://{_NOWHERE}/lake"},
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
                "address": {"uri": f"jdbc:mariadb://{_NOWHERE}/lake"},
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
            wrong={"address": {"uri": f"http://{_NOWHERE}"}, "path": {"uri": f"{catalog.properties['uri']}/nothing"}},
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
def _s3(folder: Path) -> Iterator[Running]:
    with S3Server(folder / "s3") as store:
        store.filesystem().create_dir("lake")
        yield Running(
            {
                **sqlite(folder),
                "warehouse": "s3://lake/warehouse",
                **_place_on_s3(store),
                "s3.access-key-id": ACCESS_KEY,
                "s3.secret-access-key": SECRET_KEY,
            },
            "S3Proxy 2.7.0",
            [AWS_BUNDLE],
            {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"},
            {
                "secret key": {"s3.secret-access-key": "wrong"},
                "bucket": {"warehouse": "s3://nothing/warehouse"},
                "address": {"s3.endpoint": f"http://{_NOWHERE}"},
            },
            stop=store.stop,
            start=store.start,
        )


@contextmanager
def _rest_on_s3(folder: Path) -> Iterator[Running]:
    with S3Server(folder / "s3") as store:
        store.filesystem().create_dir("lake")
        place = _place_on_s3(store)
        keys = {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}
        jars = [fetch_jar(each) for each in REST_AWS]
        with RestCatalog(
            folder / "rest", warehouse="s3://lake", properties={**place, **keys}, vends=True, jars=jars
        ) as catalog:
            yield Running(
                {**catalog.properties, "name": "lake", **place},
                "the server of Iceberg's own tests 1.10.0, S3Proxy 2.7.0",
                [AWS_BUNDLE],
                {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"},
                {"address of S3": {"s3.endpoint": f"http://{_NOWHERE}"}},
                stop=store.stop,
                start=store.start,
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
            wrong={"address": {"uri": f"http://{_NOWHERE}/api/v2"}, "branch": {"ref": "nothing"}},
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
                {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"},
                {"warehouse": {"warehouse": "nothing"}, "address": {"uri": f"http://{_NOWHERE}/iceberg"}},
            )


@contextmanager
def _nessie_server(folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[int]:
    port, other = free_ports(2)
    given = {"quarkus.http.port": str(port), "quarkus.management.port": str(other), **settings}
    command = [_java_of_nessie(), "-Xmx400m", *(f"-D{key}={value}" for key, value in given.items())]
    with RunningProgram("nessie", folder, port, [*command, "-jar", str(fetch_jar(_NESSIE))]):
        yield port


@contextmanager
def _glue(folder: Path) -> Iterator[Running]:
    (port,) = free_ports(1)
    python = _environment(f"moto[server,s3,glue]=={_MOTO}")
    with RunningProgram("moto", folder, port, [str(python.with_name("moto_server")), "-p", str(port)]):
        endpoint = f"http://127.0.0.1:{port}"
        # The emulator takes a bucket by a request that nobody has signed.
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/lake", method="PUT")).close()
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
            f"the emulator moto {_MOTO}",
            [AWS_BUNDLE],
            {"AWS_ACCESS_KEY_ID": "of-the-emulator", "AWS_SECRET_ACCESS_KEY": "of-the-emulator"},
            wrong={
                "address of Glue": {"glue.endpoint": f"http://{_NOWHERE}"},
                "address of S3": {"s3.endpoint": f"http://{_NOWHERE}"},
                "bucket": {"warehouse": "s3://nothing/warehouse"},
            },
        )


@contextmanager
def _hive(folder: Path) -> Iterator[Running]:
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
    with RunningServer(_HIVE, folder, port, options=options, arguments=["-p", str(port)]) as server:
        yield Running(
            {
                "type": "hive",
                "name": "lake",
                "uri": f"thrift://127.0.0.1:{port}",
                "warehouse": f"file:{warehouse}",
            },
            "Hive 3.1.3, with Derby and without its transaction tables",
            wrong={"address": {"uri": f"thrift://{_NOWHERE}"}},
            stop=server.stop,
            start=server.start,
        )


@contextmanager
def _azure(folder: Path) -> Iterator[Running]:
    (port,) = free_ports(1)
    program = _npm(f"azurite@{_AZURITE}") / "azurite-blob"
    command = [str(program), "--skipApiVersionCheck", "--blobPort", str(port), "--location", str(folder), "--silent"]
    # Killed, the emulator loses what it was given last, so that it is not ended in mid-round.
    with RunningProgram("azurite", folder, port, command):
        host = f"127.0.0.1:{port}"
        _make_container(host)
        authority = f"{_ACCOUNT}.dfs.core.windows.net"
        yield Running(
            {
                **sqlite(folder),
                "warehouse": f"abfss://lake@{authority}/warehouse",
                "io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
                f"adls.connection-string.{authority}": f"http://{host}/{_ACCOUNT}",
                "adls.auth.shared-key.account.name": _ACCOUNT,
                "adls.auth.shared-key.account.key": _ACCOUNT_KEY,
            },
            f"the emulator Azurite {_AZURITE}",
            [_AZURE_BUNDLE],
            wrong={
                "key": {"adls.auth.shared-key.account.key": "d3Jvbmc="},
                "container": {"warehouse": f"abfss://nothing@{authority}/warehouse"},
            },
        )


@contextmanager
def _gcs(folder: Path) -> Iterator[Running]:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [str(_go(_FAKE_GCS)), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-filesystem-root", str(folder / "objects"), "-public-host", f"127.0.0.1:{port}", "-external-url", url]
    with RunningProgram("fake-gcs-server", folder, port, command) as server:
        bucket = urllib.request.Request(f"{url}/storage/v1/b?project=lake", data=b'{"name": "lake"}', method="POST")
        bucket.add_header("Content-Type", "application/json")
        urllib.request.urlopen(bucket).close()
        yield Running(
            {
                **sqlite(folder),
                "warehouse": "gs://lake/warehouse",
                "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO",
                "gcs.service.host": url,
                "gcs.project-id": "lake",
                "gcs.oauth2.token": "of-the-emulator",
                "gcs.oauth2.token-expires-at": str(int((time.time() + 86_400) * 1000)),
            },
            f"the emulator fake-gcs-server {_FAKE_GCS.rpartition('@')[2]}",
            [_GCP_BUNDLE],
            wrong={
                "address": {"gcs.service.host": f"http://{_NOWHERE}"},
                "bucket": {"warehouse": "gs://nothing/warehouse"},
                "token that has expired": {"gcs.oauth2.token-expires-at": "1000"},
            },
            stop=server.stop,
            start=server.start,
        )


def sqlite(folder: Path) -> dict[str, str]:
    """Return the properties of a JDBC catalog for a store of files."""
    uri = f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=30000"
    return {"type": "jdbc", "name": "lake", "uri": uri, "jdbc.schema-version": "V1"}


def _place_on_s3(store: S3Server) -> dict[str, str]:
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": f"http://127.0.0.1:{store.port}",
        "s3.path-style-access": "true",
        "client.region": REGION,
    }


def _make_container(host: str) -> None:
    program = (
        "import sys; from azure.storage.blob import BlobServiceClient; "
        "BlobServiceClient(sys.argv[1], credential=sys.argv[2]).create_container('lake')"
    )
    python = _environment("azure-storage-blob")
    subprocess.run([str(python), "-c", program, f"http://{host}/{_ACCOUNT}", _ACCOUNT_KEY], check=True)


def _environment(requirement: str) -> Path:
    """Return the Python of an environment with a package, which is made at its first use."""
    folder = SERVERS / requirement.replace("[", "-").replace("]", "").replace(",", "-").replace("==", "-")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([_UV, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    subprocess.run([_UV, "pip", "install", "--quiet", "--python", str(python), requirement], check=True)
    return python


def _npm(package: str) -> Path:
    """Return the folder of the programs of a package of npm, which is installed at its first use."""
    folder = SERVERS / package.replace("@", "-")
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--prefix", str(folder), package], check=True)
    return folder / "node_modules" / ".bin"


def _go(package: str) -> Path:
    """Return a program that Go builds at its first use, which takes some minutes."""
    program = SERVERS / "go" / package.rpartition("/")[2].partition("@")[0]
    if not program.exists():
        subprocess.run(["go", "install", package], check=True, env={**os.environ, "GOBIN": str(program.parent)})
    return program


def _java_of_nessie() -> str:
    """Return a Java of version 21 or later."""
    for home in sorted(Path("/usr/lib/jvm").glob("*"), reverse=True):
        java = home / "bin" / "java"
        if java.exists() and not any(each in home.name for each in ("-8-", "-11-", "-17-", "1.17", "17")):
            return str(java)
    return shutil.which("java") or "java"


PLATFORMS: Final = (
    Platform("postgresql", "JDBC catalog on PostgreSQL", _postgresql),
    Platform("mariadb", "JDBC catalog on MariaDB", _mariadb),
    Platform("rest", "REST catalog", _rest),
    Platform("rest-oauth2", "REST catalog with OAuth2", _rest_oauth2),
    Platform("s3", "S3, with a JDBC catalog", _s3),
    Platform("rest-s3", "REST catalog that vends credentials, on S3", _rest_on_s3),
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
    Platform(
        "hive",
        "Hive metastore",
        _hive,
        options={"iceberg.engine.hive.lock-enabled": "false"},
        note="Without the lock, two drivers are safe only on a metastore that [has HIVE-26882](lake.md#catalogs), "
        "which this version has not.",
    ),
    Platform(
        "azure",
        "Azure Data Lake Storage",
        _azure,
        refuses=dict.fromkeys(("clean", "maintain"), "the emulator cannot list the files of a folder"),
    ),
    Platform("gcs", "Google Cloud Storage", _gcs),
)
"""All platforms, in the order of the page."""
