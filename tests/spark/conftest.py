"""A server with a lake of its own, and the run's Spark session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spark_support import Tiering, lake_server

from fluss_tiering.client import TieringClient
from needs import needs


@pytest.fixture(scope="session")
@needs("server")
def lake_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = lake_server(tmp_path_factory.mktemp("rounds")).start()
    yield server.target
    assert server.stop() == 0


@pytest.fixture
def tiering(lake_target: str, spark) -> Iterator[Tiering]:
    with TieringClient(lake_target) as client:
        yield Tiering(client, spark, lake_target)
