"""Fixtures that the tests of client and server share; their conftests import them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine_support import ServerProcess, VirtualClock
from fluss_tiering.client import TieringClient


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that tests share: each makes tables and leases of its own."""
    running = ServerProcess(tmp_path_factory.mktemp("server")).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(server: ServerProcess) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected
