"""What tests of several packages share: one Spark session and one Fluss cluster, started by the first who needs it."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

import pytest

from needs import NeedsPlugin, needs

ROOT = Path(__file__).resolve().parent.parent

_SHARING = {
    "tests/spark/": "spark",
    "tests/lake/": "spark",
    "tests/system/": "airflow",
    "tests/storage/fluss/": "fluss",
    "tests/server/cluster/": "fluss",
}
"""Tests that share what is slow to start, of which a run has one each: a Spark session, an Airflow, a Fluss cluster."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NeedsPlugin())
    # A run in a shell's background ignores Ctrl-C, and so would the commands that tests start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keeps tests that share something in one of the processes that run them, and those of a file together."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

    class SharingScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            shared = (name for start, name in _SHARING.items() if nodeid.startswith(start))
            return next(shared, nodeid.partition("::")[0])

    return SharingScheduling(config, log)


@pytest.fixture(scope="session")
def spark_jars() -> str:
    """Comma-separated jars that Spark needs, fetched once; processes that tests start find them too."""
    from fluss_tiering.spark.submit import JARS_VARIABLE  # noqa: PLC0415 - most tests need none of this

    fetch = runpy.run_path(str(ROOT / "tools" / "fetch_spark_jars.py"))
    jars = fetch["jars"]()
    os.environ[JARS_VARIABLE] = ",".join(str(jar) for jar in jars)
    return os.environ[JARS_VARIABLE]


@pytest.fixture(scope="session")
@needs("spark")
def spark(spark_jars, tmp_path_factory):
    """A session on two cores whose tasks may fail once; each test's catalogs have names of their own."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from fluss_tiering.spark.startup.catalog_conf import session_conf  # noqa: PLC0415
    from fluss_tiering.spark.startup.local_workers import local_workers_conf  # noqa: PLC0415
    from fluss_tiering.spark.submit import spark_conf  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = "local[2,2]"
    builder = SparkSession.builder.master(master).appName("tests")
    for key, value in {**spark_conf(), **session_conf(), **local_workers_conf(master, sys.executable)}.items():
        builder = builder.config(key, value)
    session = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark-warehouse")))
        .config("spark.driver.memory", "1g")
        # Tests are over before the JVM's optimising compiler pays.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
@needs("cluster")
def fluss_cluster(tmp_path_factory):
    """A Fluss cluster of a coordinator and two tablet servers; tests leave it with all of them running."""
    from fetch_fluss_jars import fetch  # noqa: PLC0415
    from fluss_support import FlussCluster  # noqa: PLC0415

    fetch()
    with FlussCluster(tmp_path_factory.mktemp("fluss")) as cluster:
        _RUNNING.append(cluster)
        yield cluster
    _RUNNING.clear()


_RUNNING: list = []
"""The shared Fluss cluster, once it is there."""


def pytest_runtest_protocol(item, nextitem):
    """Runs a test again whose Fluss cluster shows its known defect: a coordinator that has missed a new table."""
    if "fluss_cluster" not in getattr(item, "fixturenames", ()):
        return None
    from _pytest.runner import runtestprotocol  # noqa: PLC0415

    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports) and _RUNNING and _RUNNING[0].missed_a_table():
        _RUNNING[0].heal()
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture
def fluss(fluss_cluster):
    """A client of the shared cluster."""
    from fluss_tiering.storage.fluss.rpc.client import FlussClient  # noqa: PLC0415

    with FlussClient(fluss_cluster.bootstrap, timeout=20) as client:
        yield client
