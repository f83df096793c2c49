"""The servers of a test, which end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from replica_servers import Server


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
