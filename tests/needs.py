"""What tests need: marks each test by the fixtures that it uses, and fails a test whose markers do not say it all.

A fixture that starts something says so with `@needs(...)`. Every test that uses it, directly or through other fixtures,
gets these markers. Therefore `pytest -m "not spark"` leaves out exactly the tests that would start Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., object])

_STARTING: Final = {"airflow", "cluster", "postgres", "server", "spark", "system"}
"""A test whose fixtures start programs has one of these markers."""
_STARTING_A_JVM: Final = {"airflow", "cluster", "spark", "system"}
_JVMS: Final = {"java", "spark-class", "spark-submit"}
_OF_PYTHON: Final = {"file"}
"""What Python's `platform` runs to know the machine. The first test that uses a library which asks for it starts it."""


def needs(*markers: str) -> Callable[[F], F]:
    """Decorate a fixture whose users get these markers."""

    def decorate(fixture: F) -> F:
        fixture.needs = markers  # type: ignore[attr-defined]
        return fixture

    return decorate


class NeedsPlugin:
    """The plugin of pytest that marks and checks tests."""

    def __init__(self) -> None:
        self._started: list[str] = []
        """The programs that the current test has started."""
        self._imports_airflow = False
        """Whether Airflow was imported since the current test has begun."""
        sys.addaudithook(self._watch)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark tests before pytest selects those of `-m`."""
        for item in items:
            known = item._fixtureinfo.name2fixturedefs
            for marker in sorted(_needs_of(known[name][-1] for name in item.fixturenames if known.get(name))):
                item.add_marker(marker)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Fail a test whose fixtures start more than its markers say."""
        self._started.clear()
        self._imports_airflow = False
        yield
        markers = _markers_of(item)
        _check_fixtures(item, markers)
        if self._started and not markers & _STARTING:
            pytest.fail(f"a fixture of this test starts {self._names()} and is not decorated with @needs")
        if _JVMS.intersection(Path(each).name for each in self._started) and not markers & _STARTING_A_JVM:
            pytest.fail(f"a fixture of this test starts a JVM and needs none of {sorted(_STARTING_A_JVM)}")
        self._started.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail a test that starts programs by itself, imports Airflow or asks for fixtures without saying so."""
        result = yield
        markers = _markers_of(item)
        _check_fixtures(item, markers)
        # Airflow starts programs by itself, when it is imported.
        if self._started and not markers & {"system", "airflow"}:
            pytest.fail(f"this test starts {self._names()} and is not marked with system")
        if self._imports_airflow and "airflow" not in markers:
            pytest.fail("this test imports Airflow and is not marked with airflow")
        return result

    def _names(self) -> str:
        return ", ".join(Path(program).name for program in self._started)

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what a test starts and imports; Python calls this for each of its audit events."""
        if event == "subprocess.Popen" and str(arguments[0]) not in _OF_PYTHON:
            self._started.append(str(arguments[0]))
        elif event == "import" and arguments[0] == "airflow":
            self._imports_airflow = True


def _check_fixtures(item: pytest.Item, markers: set[str]) -> None:
    """Fail a test that got a fixture by `getfixturevalue` whose markers it has not got."""
    for lacking in sorted(_needs_of(item._request._fixture_defs.values()) - markers):
        pytest.fail(f"this test uses a fixture that needs {lacking}: mark the test, or the parameter, with it")


def _markers_of(item: pytest.Item) -> set[str]:
    return {marker.name for marker in item.iter_markers()}


def _needs_of(definitions: Iterable[Any]) -> set[str]:
    return {marker for definition in definitions for marker in getattr(definition.func, "needs", ())}
