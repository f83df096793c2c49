"""Which tests run, and in which process of a run: tests that share something slow run in the same one."""

from __future__ import annotations

import signal
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterable

import pytest

import spark_session
from fetch_fluss_jars import VERSIONS
from needs import NeedsPlugin

_SHARING = {
    "tests/spark/round/": "rounds",
    "tests/spark/": "spark",
    "tests/lake/": "lake",
    "verification/torture/": "torture",
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
