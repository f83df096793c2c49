"""The server as the tiering service of a real Fluss cluster: what it holds, and how rounds go on through failures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_support import (
    ClusterServer,
    claim,
    commit,
    finish,
    lake_table,
    log_ends,
    put,
    wait_for,
)

from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.storage.fluss.calls.lake import lake_snapshot
from fluss_tiering.storage.fluss.client import FlussClient

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(fluss_cluster: FlussCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServer]:
    with ClusterServer(tmp_path_factory.mktemp("claims"), fluss_cluster.bootstrap) as running:
        yield running


@pytest.fixture
def client(server: ClusterServer) -> Iterator[TieringClient]:
    with TieringClient(server.target) as opened:
        yield opened


def test_a_round_of_a_log_table(server: ClusterServer, client: TieringClient, fluss: FlussClient) -> None:
    table = lake_table(client, "log", primary_key=False, num_buckets=2)
    put(client, table, 10)
    due = wait_for(client, table, TieringState.PENDING)
    assert due.tiering_epoch == 1
    assert server.holds(table)
    assert client.lake_snapshot(table.path) is None

    held = claim(client, table)
    snapshot_id = commit(client, table, held)
    expected = LakeSnapshot(table.table_id, snapshot_id, log_ends(client, table))
    assert client.lake_snapshot(table.path) == expected
    assert fluss.call(lake_snapshot(table.path)) == expected, "the cluster knows it too"
    finish(client, held)

    # Reported to the cluster, which finds it due again after its freshness.
    again = wait_for(client, table, TieringState.PENDING)
    assert again.tiering_epoch == 2
    assert again.last_tiered_time is not None
    client.drop_table(table.path)
