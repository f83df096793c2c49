"""Which tests run, for how long at most, and in which process of a run.

A test is given to a process by what it needs. What takes long to start, such as a Fluss cluster or an Airflow, runs
once: all tests that share it run in one process. A process has one Spark session at most, which it starts if tests with
Spark are all that is left for it. Everything else runs wherever a process is free. What takes longest comes first.
"""

from __future__ import annotations

import gc
import json
import signal
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import spark_session
from fetch_fluss_jars import VERSIONS
from needs import NeedsPlugin

DURATIONS = Path(__file__).with_name("durations.json")
"""How many seconds the tests of a unit took, which `--renew-durations` writes."""
SPARK = "spark"
_ALONE = ("cluster", "airflow", "system")
"""What a fixture of the whole run needs if the run should have it once only."""
_TIMEOUTS = {
    **dict.fromkeys(("long", "airflow", "cluster", "spark", "system"), 900),
    **dict.fromkeys(("postgres", "server", "slow"), 300),
}
"""Seconds, many times of what a test takes on a machine that does nothing else: a test that reaches them hangs."""
_WORTH_A_SESSION = 60
"""How many seconds of tests with Spark have to be left for a further process to start a session."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-durations", action="store_true", help=f"write {DURATIONS.name} from what tests take")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NeedsPlugin())
    if config.pluginmanager.hasplugin("xdist"):
        # Otherwise the units with most tests come first, which are not those that take longest.
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

    A test that several versions can run is a long one with all of them but one. The name of its file chooses this one,
    so that what the tests of a file share is started once. A test with the marker `sampled` is a long one with all of
    its cases but as many as the marker says, which their names choose.
    """
    items[:] = filter(_can_run, items)
    _choose_versions(items)
    _choose_cases(items)
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        limits = [limit for name, limit in _TIMEOUTS.items() if name in markers]
        if limits and "timeout" not in markers:
            item.add_marker(pytest.mark.timeout(limits[0]))


def _choose_versions(items: Iterable[pytest.Item]) -> None:
    versions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if version := _version_of(item):
            versions[item.nodeid.replace(f"fluss-{version}", "")].append(item)
    for name, same in versions.items():
        chosen = zlib.crc32(name.partition("::")[0].encode()) % len(same)
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say once, and not for each test, that a version of Fluss is not here, and how long each part took."""
    for version in VERSIONS.values():
        if reason := version.why_missing():
            terminalreporter.write_line(f"SKIPPED the tests of Fluss {version.name}: {reason}")
    if (scheduling := config.stash.get(_SCHEDULING, None)) is None:
        return
    units: dict[str, float] = defaultdict(float)
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if isinstance(report, pytest.TestReport) and report.nodeid in scheduling.unit_of:
            units[scheduling.unit_of[report.nodeid]] += report.duration
    parts: dict[str, float] = defaultdict(float)
    for unit, seconds in units.items():
        parts["/".join(unit.split(maxsplit=1)[0].split("/")[:3])] += seconds
    terminalreporter.section("seconds by part, of all processes together")
    for part, seconds in sorted(parts.items(), key=lambda each: -each[1])[:25]:
        terminalreporter.write_line(f"{seconds:8.0f}  {part}")
    if config.option.renew_durations:
        known = {unit: seconds for unit, seconds in _durations().items() if Path(unit.split()[0]).exists()}
        renewed = {unit: round(seconds, 1) for unit, seconds in sorted((known | units).items()) if seconds >= 1}
        DURATIONS.write_text(json.dumps(renewed, indent=0) + "\n")


def _durations() -> dict[str, float]:
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def unit_of(item: pytest.Item) -> str:
    """Return the name of the unit of a test: its file, what it shares with other files, and whether it needs Spark."""
    names = [item.nodeid.partition("::")[0], *_shared_by(item)]
    # A test that starts a driver of its own needs no session.
    driver = item.get_closest_marker("system") and SPARK not in item.fixturenames
    if item.get_closest_marker(SPARK) and not driver:
        names.append(SPARK)
    return " ".join(names)


def _shared_by(item: pytest.Item) -> Iterator[str]:
    """Name the first thing, besides Spark, that the tests of the whole run share and that should run once only.

    Each version of Fluss has a cluster of its own.
    """
    known = item._fixtureinfo.name2fixturedefs
    fixtures = [known[name][-1] for name in item.fixturenames if known.get(name)]
    shared = [each for each in fixtures if each.scope == "session" and each.argname != SPARK]
    version = _version_of(item)
    for need in _ALONE:
        if names := sorted(each.argname for each in shared if need in getattr(each.func, "needs", ())):
            yield f"{names[0]}-{version}" if version else names[0]
            return


# Before xdist tells the other process that the tests are collected, which reads the units then.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the process that divides the tests in which unit each one is: it does not collect tests itself."""
    told = getattr(session.config, "workerinput", {})
    if told.get("workerid") == "gw0":
        Path(told["units"]).write_text(json.dumps({item.nodeid: unit_of(item) for item in session.items}))
    # What pytest and the modules hold lasts for the whole run, and each garbage collection would look at all of it.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if _UNITS not in node.config.stash:
        folder = tempfile.TemporaryDirectory(prefix="units-of-tests-")
        node.config.add_cleanup(folder.cleanup)
        node.config.stash[_UNITS] = str(Path(folder.name, "units.json"))
    node.workerinput["units"] = node.config.stash[_UNITS]


_UNITS = pytest.StashKey[str]()
_SCHEDULING = pytest.StashKey[Any]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Divide the tests of a run by what they need."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

    class SharingScheduling(LoadScopeScheduling):
        """Gives a process the unit that fits best to what it has started already."""

        def __init__(self) -> None:
            super().__init__(config, log)
            self.unit_of: Mapping[str, str] = {}
            self._queue = Queue({})

        def schedule(self) -> None:
            if not self.unit_of:
                self.unit_of = json.loads(Path(config.stash[_UNITS]).read_text())
                self._queue = Queue(_expected(self.unit_of.values(), _durations()))
            super().schedule()

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            # What is done need not be counted again after each test.
            done = self.assigned_work[node]
            for unit in [unit for unit, tests in done.items() if all(tests.values())]:
                del done[unit]

        def remove_node(self, node: Any) -> str | None:
            self._queue.forget(node)
            return super().remove_node(node)

        def _split_scope(self, nodeid: str) -> str:
            return self.unit_of[nodeid]

        def _assign_work_unit(self, node: Any) -> None:
            unit = self._queue.choose(node, self.workqueue)
            if unit is None:
                node.shutdown()
            else:
                self.workqueue.move_to_end(unit, last=False)
                super()._assign_work_unit(node)

    config.stash[_SCHEDULING] = scheduling = SharingScheduling()
    return scheduling


def _expected(units: Iterable[str], durations: Mapping[str, float]) -> dict[str, float]:
    """Return how many seconds each unit will take. A test of a unit that is not known is guessed by what it needs."""
    guesses: dict[str, float] = defaultdict(float)
    for unit in units:
        guesses[unit] += 2 if " " in unit else 0.1
    return {unit: durations.get(unit, guess) for unit, guess in guesses.items()}


class Queue:
    """Chooses which unit a process gets next.

    Args:
        seconds: How long each unit will take.
    """

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds
        self._owners: dict[str, Any] = {}
        """The process that has started what tests share."""
        self._sessions: set[Any] = set()
        """The processes that have a Spark session."""

    def choose(self, node: Any, waiting: Iterable[str]) -> str | None:
        """Return the next unit of a process, or None if all that is left needs what another process has started."""
        groups: dict[str, list[str]] = defaultdict(list)
        for unit in waiting:
            groups[self._group(unit)].append(unit)
        left = {group: sum(map(self._seconds.__getitem__, units)) for group, units in groups.items()}
        owned = [group for group in groups if self._owners.get(group, node) is node and group not in {"", SPARK}]
        # What only one process can do is begun first; a process goes on with what it has begun.
        group = max(owned, key=lambda each: (each in self._owners, left[each]), default=None)
        if group is None:
            with_session = node in self._sessions or not self._sessions or left.get(SPARK, 0) > _WORTH_A_SESSION
            order = (SPARK, "") if node in self._sessions or not self._sessions else ("", SPARK)
            group = next((each for each in order if each in groups and (each != SPARK or with_session)), None)
        if group is None:
            return None
        unit = max(groups[group], key=lambda each: self._seconds[each])
        if group not in {"", SPARK}:
            self._owners[group] = node
        if unit.split()[-1] == SPARK:
            self._sessions.add(node)
        return unit

    def forget(self, node: Any) -> None:
        """Let other processes take what a process had that has ended."""
        self._owners = {group: owner for group, owner in self._owners.items() if owner is not node}
        self._sessions.discard(node)

    def _group(self, unit: str) -> str:
        return unit.split()[1] if " " in unit else ""
