"""The servers of a test, which end with it, and the time limits that their databases were given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from candidates import Candidate
from replica_servers import Server

from fluss_tiering.server.core.store.database import Database


@pytest.fixture
async def server(tmp_path: Path, postgres_url: str) -> AsyncIterator[Callable[..., Server]]:
    made: list[Server] = []

    def make(name: str, url: str = postgres_url, **options: Any) -> Server:
        made.append(Server(name, tmp_path / name, url, **options))
        return made[-1]

    yield make
    for each in reversed(made):
        if hasattr(each, "replica"):
            await each.end()


@pytest.fixture
def candidate(postgres_url: str) -> Iterator[Callable[..., Candidate]]:
    made = []

    def make(name: str, **options: float) -> Candidate:
        made.append(Candidate(postgres_url, name, **options))
        return made[-1]

    yield make
    for each in made:
        each.election.close()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time limits that the calls of the database had."""
    noted: list[float] = []
    limit = Database.time_limit

    def note(database: Database, seconds: float) -> AbstractContextManager[None]:
        noted.append(seconds)
        return limit(database, seconds)

    monkeypatch.setattr(Database, "time_limit", note)
    return noted
