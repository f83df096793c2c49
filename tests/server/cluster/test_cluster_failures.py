"""A Fluss cluster whose servers fail in mid-round: its own cluster, since others would wait for it. Takes minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_support import ClusterServer, claim, finish, lake_table, put, wait_for

from engine_support import log_ends, status
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import Claim, TieringState
from needs import needs
from waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.system, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
@needs("cluster")
def cluster(fluss_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlussCluster]:
    # With one replica, Fluss 0.9.1 loses what it acknowledged last when a tablet server is killed.
    settings = {"default.replication.factor": "2"}
    with FlussCluster(tmp_path_factory.mktemp("failing"), version=fluss_version, settings=settings) as started:
        yield started


@pytest.fixture
def server(cluster: FlussCluster, tmp_path: Path) -> Iterator[ClusterServer]:
    with ClusterServer(tmp_path, cluster.bootstrap) as running:
        yield running


@pytest.fixture
def table(client: TieringClient) -> TableInfo:
    """Of four buckets, so that each tablet server leads some; Pending."""
    made = lake_table(client, "failing", primary_key=False, num_buckets=4)
    for first in range(0, 40, 10):
        put(client, made, 10, first)
    wait_for(client, made, TieringState.PENDING)
    return made


def patiently(call: Callable[[], object]) -> None:
    """As a driver does, which tries again while the server says UNAVAILABLE."""

    def worked() -> bool:
        try:
            call()
        except FlussTieringError:
            return False
        return True

    wait_until(worked, 120)


def end_round(client: TieringClient, table: TableInfo, running: Claim, snapshot_id: int) -> None:
    """Prepares and commits all that there is, and shows that the next round begins where this one ended."""
    offsets: dict = {}
    paths: list[str] = []
    patiently(lambda: offsets.update(log_ends(client, table)))
    assert sum(offsets.values()) == 40
    patiently(lambda: paths.append(client.prepare_lake_snapshot(table, running.tiering_epoch, offsets)))
    patiently(
        lambda: client.commit_lake_snapshot(table, running.tiering_epoch, snapshot_id, offsets, paths[0], "commit")
    )
    finish(client, running)
    patiently(lambda: client.lake_snapshot(table.path))
    assert client.lake_snapshot(table.path) == LakeSnapshot(table.table_id, snapshot_id, offsets)
    again = wait_for(client, table, TieringState.PENDING)
    assert again.tiering_epoch == running.tiering_epoch + 1  # S3
    client.drop_table(table.path)


def test_zookeeper_restarts_in_mid_round(cluster: FlussCluster, client: TieringClient, table: TableInfo) -> None:
    running = claim(client, table)
    cluster.zookeeper.kill()
    time.sleep(3)
    cluster.zookeeper.start()
    end_round(client, table, running, 1)


def test_zookeeper_is_away_for_longer_than_its_sessions(
    cluster: FlussCluster, client: TieringClient, table: TableInfo
) -> None:
    running = claim(client, table)
    cluster.zookeeper.kill()
    try:
        time.sleep(15)
        # Whatever the cluster is up to, statuses are told.
        assert status(client, table).state is TieringState.TIERING
    finally:
        cluster.zookeeper.start()
        cluster.wait_until_ready()
    end_round(client, table, running, 2)


def test_a_tablet_server_is_killed_in_mid_round(cluster: FlussCluster, client: TieringClient, table: TableInfo) -> None:
    running = claim(client, table)
    killed = cluster.tablet_servers[1]
    killed.kill()
    try:
        # What it led is led by the other one, once its session in ZooKeeper has ended.
        end_round(client, table, running, 3)
    finally:
        killed.start()
        cluster.wait_until_ready()
