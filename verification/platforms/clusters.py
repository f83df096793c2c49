"""Where Spark runs: how each cluster is started on this machine, and the rounds that are tried on it.

The lake is a JDBC catalog on SQLite and a folder, since all is on one machine. Pyiceberg reads the rows.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pyspark
from pyiceberg.catalog.sql import SqlCatalog

from examples.ports import free_ports
from fetch_spark_jars import jars
from fetch_test_servers import SERVERS, JavaServer, fetch
from fluss_tiering import TieringClient
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.submit import write_package
from java_servers import RunningServer
from matrix.one_round import Changes, expect, server
from platforms.job import wrong_setting
from platforms.running import sqlite
from standalone_support import python_without_engine, standalone_cluster
from waiting import wait_until

_MAIN: Final = "MiniHadoop"
_HADOOP: Final = JavaServer(
    "hadoop-minicluster-3.4.2",
    (
        "org.apache.hadoop:hadoop-client-minicluster:3.4.2",
        "org.apache.hadoop:hadoop-client-api:3.4.2",
        "org.apache.hadoop:hadoop-client-runtime:3.4.2",
        "com.sun.jersey:jersey-server:1.19.4",
        "com.sun.xml.bind:jaxb-core:2.3.0.1",
        "com.sun.xml.bind:jaxb-impl:2.3.3",
        "javax.xml.bind:jaxb-api:2.3.1",
        "junit:junit:4.13.2",
        "org.bouncycastle:bcpkix-jdk18on:1.78.1",
        "org.mockito:mockito-core:2.28.2",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
    _MAIN,
)
_SPARK: Final = Path(pyspark.__file__).parent
_BIN: Final = Path(sys.executable).parent
_ENGINE: Final = Path(__file__).resolve().parents[2] / "engine"
_ROUND_S: Final = 240.0
_ENDED_S: Final = 120.0
_SMALL: Final = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.yarn.am.memory": "512m",
    "spark.yarn.submit.waitAppCompletion": "true",
    "spark.ui.enabled": "false",
}
_MASTER: Final = "org.apache.spark.deploy.yarn.ApplicationMaster"
_LAUNCHER: Final = "org.apache.spark.deploy.yarn.ExecutorLauncher"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_NAME_NODE: Final = "fs.defaultFS"
_ON_YARN: Final = """\
# client, with HADOOP_CONF_DIR
PYSPARK_PYTHON=/opt/fluss/bin/python fluss-tiering tier --master yarn shop.orders

# cluster, with HADOOP_CONF_DIR, after `fluss-tiering package --to PACKAGE`
spark-submit --master yarn --deploy-mode cluster \\
  --py-files PACKAGE/fluss_tiering-VERSION.zip \\
  --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=/opt/fluss/bin/python \\
  --conf spark.executorEnv.PYSPARK_PYTHON=/opt/fluss/bin/python \\
  --conf spark.scheduler.mode=FAIR --jars ICEBERG_SPARK_RUNTIME,JDBC_DRIVER \\
  PACKAGE/application.py --server HOST:PORT shop.orders"""
_ON_STANDALONE: Final = """\
PYSPARK_PYTHON=/opt/fluss/bin/python fluss-tiering tier --master spark://HOST:PORT shop.orders

# in spark-defaults.conf, for dynamic allocation
spark.dynamicAllocation.enabled true
spark.dynamicAllocation.shuffleTracking.enabled true
spark.dynamicAllocation.minExecutors 1"""


@dataclass(frozen=True)
class Site:
    """What a run on a cluster needs.

    Attributes:
        folder: The folder of all its files.
        client: The client of the tiering server.
        target: The address of the tiering server.
        lake: The catalog that the reader reads.
        properties: The properties of the lake catalog.
    """

    folder: Path
    client: TieringClient
    target: str
    lake: SqlCatalog
    properties: Mapping[str, str]


@dataclass(frozen=True)
class Cluster:
    """A cluster of Spark that can be started.

    Attributes:
        name: The name for `--only`.
        title: The name in the page.
        version: What was started.
        command: What one runs.
        steps: Starts it, and yields each step: the mode, what is done, and the function that does it, which returns the
            line with which it was refused, if that is right.
    """

    name: str
    title: str
    version: str
    command: str
    steps: Callable[[Site], Iterator[tuple[str, str, Callable[[], str | None]]]]


class Table(Changes):
    """A primary-key table that applications on a cluster tier.

    Args:
        site: What the run needs.
        name: The name of the table.
        command: The command that tiers a table, to which the table is added.
        environment: Its environment.
    """

    def __init__(self, site: Site, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(site.client, site.target, name=name)
        self._site, self._environment = site, environment
        self._command = [*command, "--server", site.target, str(self._table.path)]

    def round(self) -> None:
        """Tier a first time."""
        self._write({key: f"name {key}" for key in range(1000)})
        self._tier()
        self._compare()

    def refused(self, reason: str) -> str:
        """Write a row and tier, which must be refused in a line with the reason, and return the line."""
        # Without a new row, no round would start Spark.
        self._write({1: "refused"})
        application = self._start()
        told, _ = application.communicate(timeout=_ROUND_S)
        expect(application.returncode != 0 and reason in _last(told), f"exit code {application.returncode}: {told}")
        return _last(told).removeprefix("error: ")

    def killed(self, program: str, *, tiers: bool) -> None:
        """Kill a process of the application in mid-round.

        Args:
            program: The class of the process.
            tiers: Whether the application goes on and tiers. Else the next round does.
        """
        self._interrupt(lambda application: os.kill(application.pid, signal.SIGKILL), program, tiers=tiers)

    def ended(self, kill: Callable[[str], None], program: str) -> None:
        """Kill the whole application in mid-round by the cluster's own command."""
        self._interrupt(lambda application: kill(application.name), program, tiers=False)

    def _interrupt(self, kill: Callable[[Process], object], program: str, *, tiers: bool) -> None:
        self._write({key: f"interrupted {time.monotonic()}" for key in range(100_000)})
        # An executor may outlive its application for a moment.
        before = processes(self._site.folder, program)
        application = self._start()
        try:
            wait_until(lambda: application.poll() is not None or self._state() is TieringState.TIERING)
            expect(application.poll() is None, "the application ended before a round began")
            new = wait_until(lambda: [each for each in processes(self._site.folder, program) if each not in before])
            kill(new[0])
            told, _ = application.communicate(timeout=_ROUND_S)
        finally:
            application.kill()
        if tiers:
            expect(application.returncode == 0, _last(told))
        else:
            expect(application.returncode != 0, "the application ended as if nothing had been")
            # The node manager may kill the driver before it has told the server, which then waits for a heartbeat.
            wait_until(lambda: self._state() is not TieringState.TIERING and not self._pinned(), _ROUND_S)
            self._client.resume_tables([self._table.path])
            self._tier()
        self._compare()
        expect(not self._pinned(), "a snapshot stays leased")

    def _tier(self) -> None:
        application = self._start()
        try:
            told, _ = application.communicate(timeout=_ROUND_S)
        finally:
            application.kill()
        expect(application.returncode == 0, _last(told))

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            # `spark-submit` finds pyspark by the first `python3`.
            env={**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}", **self._environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _compare(self) -> None:
        found = self._site.lake.load_table(str(self._table.path)).scan(selected_fields=("id", "name")).to_arrow()
        self._expect_equal(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))

    def _state(self) -> TieringState:
        (status,) = self._client.list_tiering_statuses(self._table.path)
        return status.state

    def _pinned(self) -> bool:
        return any(lease.snapshots for lease in self._client.list_leases())


@dataclass(frozen=True)
class Process:
    """A process of an application.

    Attributes:
        pid: Its number.
        name: The id of the application, which is in the name of its folder.
    """

    pid: int
    name: str


def processes(folder: Path, program: str) -> list[Process]:
    """Return the JVMs of applications that run a class, and work in a folder."""
    found = []
    for number, working, arguments in _working_in(folder):
        application = re.search(r"(application|app)[-_]\d+[-_]\d+", str(working))
        is_java = arguments[0].endswith("java") and any(argument.endswith(program) for argument in arguments)
        if application and is_java:
            found.append(Process(number, application[0]))
    return found


def _working_in(folder: Path) -> Iterator[tuple[int, Path, list[str]]]:
    """Yield the number, the folder and the arguments of each process that works below a folder."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            working = (each / "cwd").readlink()
            arguments = (each / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if working.is_relative_to(folder):
            yield int(each.name), working, arguments


def tried(cluster: Cluster, folder: Path) -> Iterator[dict[str, Any]]:
    """Start a cluster with its files in a folder, and yield what came of each step."""
    warehouse, name = f"file:{folder / 'warehouse'}", "lake"
    properties = {**sqlite(folder), "warehouse": warehouse}
    lake = SqlCatalog(name, uri=f"sqlite:///{folder}/catalog.db", warehouse=warehouse)
    with (
        server(
            folder,
            *("-D", f"lake-catalog={json.dumps(properties)}", "-D", "kv.snapshot.lease.expiration-check-interval=5s"),
        ) as target,
        TieringClient(target, timeout=300) as client,
    ):
        for mode, what, step in cluster.steps(Site(folder, client, target, lake, properties)):
            began = time.monotonic()
            told = saw = None
            try:
                saw = step()
            except Exception as error:  # noqa: BLE001 - every reason belongs into the page
                told = f"{type(error).__name__}: {error}".splitlines()[0]
            yield {"kind": mode, "step": what, "told": told, "saw": saw, "seconds": time.monotonic() - began}


def _yarn(site: Site) -> Iterator[tuple[str, str, Callable[[], str | None]]]:
    with _hadoop(site.folder / "hadoop") as conf:
        python = str(python_without_engine(site.folder))
        package = site.folder / "package"
        package.mkdir()
        write_package(package)
        environment = {"HADOOP_CONF_DIR": str(conf), "SPARK_CONF_DIR": str(_conf(site.folder, _SMALL))}
        client = [str(_BIN / "fluss-tiering"), "tier", "--master", "yarn"]
        of_client = {**environment, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
        archive = str(next(package.glob("*.zip")))

        def in_cluster(python: str, *shipped: str) -> list[str]:
            return [
                *(str(_BIN / "spark-submit"), "--master", "yarn", "--deploy-mode", "cluster", *shipped),
                *("--conf", f"spark.yarn.appMasterEnv.PYSPARK_PYTHON={python}"),
                *("--conf", f"spark.executorEnv.PYSPARK_PYTHON={python}", "--conf", "spark.scheduler.mode=FAIR"),
                *("--jars", ",".join(map(str, jars())), str(package / "application.py")),
                # YARN kills the driver before it can release its lease, and a step waits until the lease has expired.
                *("--lease-duration-ms", "60000"),
            ]

        kill = partial(_kill_application, conf)
        by_client = Table(site, "by_client", client, of_client)
        yield "client", "two rounds, with upserts and deletes", by_client.rounds
        yield "client", "an executor killed in mid-round", partial(by_client.killed, _EXECUTOR, tiers=True)
        yield "client", "the application master killed in mid-round", partial(by_client.killed, _LAUNCHER, tiers=True)
        yield "client", "`yarn application -kill` in mid-round", partial(by_client.ended, kill, _LAUNCHER)
        by_cluster = Table(site, "by_cluster", in_cluster(python, "--py-files", archive), environment)
        yield "cluster", "two rounds, with upserts and deletes", by_cluster.rounds
        yield "cluster", "an executor killed in mid-round", partial(by_cluster.killed, _EXECUTOR, tiers=True)
        yield "cluster", "the application master killed in mid-round", partial(by_cluster.killed, _MASTER, tiers=True)
        yield "cluster", "`yarn application -kill` in mid-round", partial(by_cluster.ended, kill, _MASTER)
        packed = f"{_packed_python(site.folder)}#environment"
        by_archive = in_cluster("./environment/bin/python", "--archives", packed)
        by_archive_table = Table(site, "by_archive", by_archive, environment)
        yield "cluster", "a Python with the package by `--archives`", by_archive_table.round
        yield "local", "a warehouse on HDFS, without `libhdfs.so`", partial(_refused_hdfs, site, conf)


def _refused_hdfs(site: Site, conf: Path) -> str:
    settings = ET.parse(conf / "core-site.xml")
    (name_node,) = (each.findtext("value") for each in settings.iter("property") if each.findtext("name") == _NAME_NODE)
    refused = wrong_setting(site.folder / "hdfs", {**site.properties, "warehouse": f"{name_node}/warehouse"})
    expect(refused["right"], refused["told"])
    return str(refused["told"])


@contextmanager
def _hadoop(folder: Path) -> Iterator[Path]:
    """Start YARN and HDFS in one JVM, and yield the folder of their settings."""
    fetch(_HADOOP)
    classes = SERVERS / "classes-of-hadoop"
    subprocess.run(
        ["javac", "-cp", _HADOOP.class_path, "-d", str(classes), str(Path(__file__).with_name(f"{_MAIN}.java"))],
        check=True,
    )
    (port,) = free_ports(1)
    options = ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
    try:
        with RunningServer(_HADOOP, folder, port, options=options, arguments=[str(folder), str(port)], jars=[classes]):
            yield folder
    finally:
        # What the node manager has started outlives it.
        for number, _, _ in _working_in(folder):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def _kill_application(conf: Path, name: str) -> None:
    program = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
    command = ["java", "-Xmx256m", "-cp", f"{conf}:{_SPARK / 'jars' / '*'}", program, "application", "-kill", name]
    subprocess.run(command, check=True, capture_output=True, timeout=_ENDED_S)


def _standalone(site: Site) -> Iterator[tuple[str, str, Callable[[], str | None]]]:
    dynamic = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
    }
    python = str(python_without_engine(site.folder))
    with standalone_cluster(site.folder) as master:
        command = [str(_BIN / "fluss-tiering"), "tier", "--master", master]
        for mode, settings in {"client": {}, "client, with dynamic allocation": dynamic}.items():
            environment = {
                "SPARK_CONF_DIR": str(_conf(site.folder, {**_SMALL, **settings})),
                "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            }
            table = Table(site, "dynamic" if settings else "fixed", command, environment)
            yield mode, "two rounds, with upserts and deletes", table.rounds
            yield mode, "an executor killed in mid-round", partial(table.killed, _EXECUTOR, tiers=True)
        by_connect = Table(site, "by_connect", [*command[:-1], "sc://127.0.0.1:15002"], {})
        yield "Connect", "`--master sc://HOST:15002`", partial(by_connect.refused, "Spark Connect")


def _packed_python(folder: Path) -> Path:
    """Return an archive of a virtual environment with the package. Of pyspark it lacks the jars, which YARN has."""
    environment, packed = folder / "environment", folder / "environment.tar.gz"
    uv = str(_BIN / "uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    package = f"fluss-tiering[spark] @ {_ENGINE.as_uri()}"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(environment), package], check=True)
    subprocess.run(
        ["tar", "--use-compress-program=gzip -1", "--exclude=pyspark/jars", "-cf", packed, "-C", environment, "."],
        check=True,
    )
    return packed


def _conf(folder: Path, settings: Mapping[str, str]) -> Path:
    """Return a folder with the settings as `spark-defaults.conf`."""
    conf = folder / f"conf-{len(list(folder.glob('conf-*')))}"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return conf


def _last(told: str) -> str:
    errors = [line for line in told.splitlines() if re.match(r"error:|.*Error|.*Exception", line)]
    return (errors or told.strip().splitlines() or ["it said nothing"])[-1]


CLUSTERS: Final = (
    Cluster("yarn", "YARN", f"{_HADOOP.name.rpartition('-')[2]}, one node manager", _ON_YARN, _yarn),
    Cluster("standalone", "Standalone cluster", f"{pyspark.__version__}, two workers", _ON_STANDALONE, _standalone),
)
"""All clusters, in the order of the page."""
