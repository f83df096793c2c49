"""What tests of several packages share: one Spark session and one Fluss cluster, which the first user starts."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

import spark_session
from fetch_fluss_jars import VERSIONS
from needs import needs
from waiting import WAIT_S

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def spark_jars() -> str:
    """The jars that Spark needs, separated by commas. They are fetched once, also for processes that tests start.

    These processes also find an archive of Spark's classes.
    """
    import spark_classes  # noqa: PLC0415 - most tests need none of this
    from fluss_tiering.spark.startup.jvm import ARCHIVE_VARIABLE  # noqa: PLC0415
    from fluss_tiering.spark.submit import JARS_VARIABLE  # noqa: PLC0415

    fetch = runpy.run_path(str(ROOT / "tools" / "fetch_spark_jars.py"))
    jars = fetch["jars"]()
    os.environ[JARS_VARIABLE] = ",".join(str(jar) for jar in jars)
    if archive := spark_classes.archive():
        os.environ[ARCHIVE_VARIABLE] = str(archive)
    return os.environ[JARS_VARIABLE]


@pytest.fixture(scope="session")
@needs("spark")
def spark(request, tmp_path_factory):
    """A session on two cores whose tasks may fail once. Each test gives its catalogs names of their own."""
    if spark_session.PORT_VARIABLE in os.environ:
        yield spark_session.attach()
        return
    request.getfixturevalue("spark_jars")
    session = spark_session.start(tmp_path_factory.mktemp("spark-warehouse"))
    yield session
    session.stop()


@pytest.fixture(scope="session", params=VERSIONS, ids=lambda name: f"fluss-{name}")
def fluss_version(request) -> str:
    """The version of Fluss: a test runs with each one, unless it is marked with `fluss_versions`."""
    return request.param


@pytest.fixture(scope="session")
@needs("cluster")
def fluss_cluster(fluss_version, tmp_path_factory):
    """A Fluss cluster with a coordinator and two tablet servers. All of them run when a test ends."""
    from fluss_support import FlussCluster  # noqa: PLC0415

    # The run's Spark session keeps the lake of each cluster, and a run may start a cluster of a version twice.
    folder = tmp_path_factory.mktemp("fluss")
    catalog = f"lake_of_{folder.name}"
    settings = {"datalake.iceberg.name": catalog}
    with FlussCluster(folder, version=fluss_version, settings=settings) as cluster:
        cluster.lake_catalog["name"] = catalog
        _RUNNING.append(cluster)
        yield cluster
    _RUNNING.clear()


_RUNNING: list = []
"""The shared Fluss cluster, once it was started."""


_TRIES = 3
"""How often a test is run in all that a known defect of Fluss has hit: the same test may meet it twice in a row."""


def pytest_runtest_protocol(item, nextitem):
    """Run a test again if a known defect of Fluss has hit a server of its cluster."""
    if "fluss_cluster" not in getattr(item, "fixturenames", ()):
        return None
    from _pytest.runner import runtestprotocol  # noqa: PLC0415

    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for left in reversed(range(_TRIES)):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        failed = any(report.failed for report in reports)
        # A lost server is started for the next tests, too. Looking for missed tables reads the coordinator's whole log.
        ill = _RUNNING and (_RUNNING[0].has_lost_a_server() or (failed and _RUNNING[0].missed_a_table()))
        if ill:
            _RUNNING[0].heal()
        if not (ill and failed and left):
            break
        item._initrequest()
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture
def fluss(fluss_cluster):
    """A client of the shared cluster."""
    from fluss_tiering.storage.fluss.rpc.client import FlussClient  # noqa: PLC0415

    with FlussClient(fluss_cluster.bootstrap, timeout=WAIT_S) as client:
        yield client


@pytest.fixture(scope="session")
def java_client(fluss_cluster, tmp_path_factory):
    """Fluss's own Java client 1.0.0 at the shared cluster."""
    from fluss_java_client import FlussJavaClient  # noqa: PLC0415

    with FlussJavaClient(tmp_path_factory.mktemp("java-client"), fluss_cluster.bootstrap) as started:
        yield started
