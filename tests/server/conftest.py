"""Fixtures of the server's tests: servers, and the managers alone with a clock set by the test and a real store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_support import Managers

from engine_fixtures import client, clock, postgres, postgres_url, server, store_location  # noqa: F401
from engine_support import VirtualClock
from fluss_tiering.server.core.store.store import SqlTieringStore
from postgres_support import Postgres


@pytest.fixture(scope="session")
def managers_url(postgres: Postgres) -> str:  # noqa: F811
    """A PostgreSQL database that the tests of managers share: a new one for each would take longer than the tests."""
    url = postgres.new_database()
    SqlTieringStore.open(url).close()
    return url


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite database that tests copy, because a copy takes a tenth of the time of making one."""
    path = tmp_path_factory.mktemp("empty") / "server.db"
    SqlTieringStore.open(path).close()
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.long])])
def managers(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> Iterator[Managers]:  # noqa: F811
    """The managers on an empty database of each kind.

    What differs between the kinds are the store and failing over, whose own tests have both. So it is SQLite alone here
    but for `make test-long`.
    """
    if request.param == "sqlite":
        path = shutil.copy(request.getfixturevalue("empty_database"), tmp_path / "server.db")
        opened = Managers(path, clock)
    else:
        opened = Managers(request.getfixturevalue("managers_url"), clock)
    yield opened
    opened.close()
    if request.param == "postgresql":
        request.getfixturevalue("postgres").empty(request.getfixturevalue("managers_url"))
