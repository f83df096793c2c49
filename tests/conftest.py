"""What tests of several packages share: one Spark session and one Fluss cluster, which the first user starts."""

from __future__ import annotations

import os
import runpy
import signal
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

import spark_session
from fetch_fluss_jars import VERSIONS
from needs import NeedsPlugin, needs
from waiting import WAIT_S

ROOT = Path(__file__).resolve().parent.parent

_SHARING = {
    "tests/spark/round/": "rounds",
    "tests/spark/": "spark",
    "tests/lake/": "lake",
    "tests/torture/": "torture",
    "tests/system/": "airflow",
    "tests/provider/page/": "page",
    "tests/storage/fluss/": "fluss",
    "tests/server/cluster/": "fluss",
    "tests/security/acls/": "guarded fluss",
}
"""Tests that share what is slow to start. The first of these lines counts, and what takes longest comes first: a run
ends with small parts, which its processes can divide. Each process has one Spark session at most."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NeedsPlugin())
    if config.pluginmanager.hasplugin("xdist"):
        # Otherwise the parts with most tests come first, which are not those that take longest.
        config.option.loadscopereorder = False
    if config.pluginmanager.hasplugin("hypothesispytest"):
        _let_examples_take_any_time()
    # A run in a shell's background ignores Ctrl-C, and so would the commands that tests start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _let_examples_take_any_time() -> None:
    """Let no test with made-up examples fail because the machine is busy."""
    from hypothesis import HealthCheck, settings  # noqa: PLC0415 - the tests of some versions of Airflow go without

    settings.register_profile("any time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any time")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out versions of Fluss that are not here, or that the marker `fluss_versions` of a test does not name.

    A test that several versions can run is a long one with all of them but one, which its name chooses. A test with the
    marker `sampled` is a long one with all of its cases but as many as the marker says, which their names choose.
    """
    items[:] = sorted(filter(_can_run, items), key=_place)
    _choose_versions(items)
    _choose_cases(items)


def _choose_versions(items: Iterable[pytest.Item]) -> None:
    versions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if version := _version_of(item):
            versions[item.nodeid.replace(f"fluss-{version}", "")].append(item)
    for name, same in versions.items():
        chosen = zlib.crc32(name.encode()) % len(same)
        for number, item in enumerate(same):
            if number != chosen:
                item.add_marker("long")


def _choose_cases(items: Iterable[pytest.Item]) -> None:
    samples: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (marker := item.get_closest_marker("sampled")) and not item.get_closest_marker("long"):
            samples[item.nodeid.partition("[")[0], marker.args[0]].append(item)
    for (_, count), cases in samples.items():
        for item in sorted(cases, key=lambda item: zlib.crc32(item.nodeid.encode()))[count:]:
            item.add_marker("long")


def _place(item: pytest.Item) -> int:
    """Return how early a test is run. Tests with the same number keep their order."""
    return next((number for number, start in enumerate(_SHARING) if item.nodeid.startswith(start)), len(_SHARING))


def _version_of(item: pytest.Item) -> str | None:
    return getattr(item, "callspec", None) and item.callspec.params.get("fluss_version")


def _can_run(item: pytest.Item) -> bool:
    version = _version_of(item)
    marker = item.get_closest_marker("fluss_versions")
    return version is None or (VERSIONS[version].why_missing() is None and (marker is None or version in marker.args))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let no other test fail because the time of this one ended."""
    if call.excinfo is not None and "Timeout" in str(call.excinfo.value):
        spark_session.forget_unanswered_call()
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once, and not for each test, that a version of Fluss is not here."""
    for version in VERSIONS.values():
        if reason := version.why_missing():
            terminalreporter.write_line(f"SKIPPED the tests of Fluss {version.name}: {reason}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run tests that share something in one process, and the tests of a file as well."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

    class SharingScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            shared = (name for start, name in _SHARING.items() if nodeid.startswith(start))
            scope = next(shared, nodeid.partition("::")[0])
            # Each version has a cluster of its own, which all tests with Spark share.
            version = next((name for name in VERSIONS if f"fluss-{name}" in nodeid), "")
            return f"{'spark' if version and scope == 'rounds' else scope}{version}"

    return SharingScheduling(config, log)


@pytest.fixture(scope="session")
def spark_jars() -> str:
    """The jars that Spark needs, separated by commas. They are fetched once, also for processes that tests start.

    These processes also find an archive of Spark's classes.
    """
    import spark_classes  # noqa: PLC0415 - most tests need none of this
    from fluss_tiering.spark.startup.driver_jvm import ARCHIVE_VARIABLE  # noqa: PLC0415
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
