"""Servers with lakes of their own, and the run's Spark session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spark_support import Tiering, lake_server, served

from fluss_support import FlussCluster
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


@pytest.fixture(scope="module")
@needs("server")
def cluster(fluss_cluster: FlussCluster, spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiering]:
    """Yield a server in front of the Fluss cluster."""
    with served(fluss_cluster.bootstrap, tmp_path_factory.mktemp("cluster"), spark) as tiering:
        yield tiering
