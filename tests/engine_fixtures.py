"""Fixtures that the tests of client and server share; their conftests import them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest

from engine_support import ServerProcess, VirtualClock
from fluss_tiering.client import TieringClient
from needs import needs
from postgres_support import SHARED, AnyPostgres, Postgres


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="session")
@needs("server")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server that tests share. Each test creates tables and leases of its own."""
    running = ServerProcess(tmp_path_factory.mktemp("server")).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(server: ServerProcess) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected


@pytest.fixture(scope="session")
@needs("postgres")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL server of the run. Each test creates a database in it.

    A server that other runs share may not be stopped: tests that stop it are left out of runs that have one.
    """
    if (shared := os.environ.get(SHARED)) is not None:
        yield cast("Postgres", AnyPostgres(shared))
        return
    # Root starts PostgreSQL as another user. That user needs a folder outside of pytest's: each run of pytest makes the
    # folders of all runs private, so that a second run would take this one's files away from PostgreSQL.
    with TemporaryDirectory(prefix="postgres-of-tests-", ignore_cleanup_errors=True) as folder:
        running = Postgres(Path(folder))
        yield running
        running.stop()


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """An empty PostgreSQL database."""
    return postgres.new_database()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_location(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A database of each kind in which the store may be."""
    return tmp_path / "server.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
