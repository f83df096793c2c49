"""The health of a real Fluss cluster, over gRPC and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_support import ClusterServer, lake_table, put
from typer.testing import CliRunner

from fluss_support import FlussCluster
from fluss_tiering.cli.main import app
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import ClusterHealth, ClusterHealthStatus
from waiting import wait_until


def status_lines(server: ClusterServer, *options: str) -> list[str]:
    shown = CliRunner().invoke(app, ["status", "--server", server.target, *options])
    assert shown.exit_code == 0, shown.output
    return shown.stdout.splitlines()


def health_with(status: ClusterHealthStatus, client: TieringClient) -> ClusterHealth | None:
    health = client.cluster_health()
    return health if health is not None and health.status is status else None


@pytest.mark.fluss_versions("1.0")
def test_the_health_of_a_cluster_is_told(fluss_cluster: FlussCluster, tmp_path: Path) -> None:
    with ClusterServer(tmp_path, fluss_cluster.bootstrap) as server, TieringClient(server.target) as client:
        before = client.cluster_health()
        assert before is not None
        table = lake_table(client, "healthy", num_buckets=3)
        put(client, table, 10)

        def counted() -> ClusterHealth | None:
            health = client.cluster_health()
            assert health is not None
            return health if health.active_leaders == health.buckets >= before.buckets + 3 else None

        # Tables of other tests may come and go meanwhile, so that the line is compared with its own moment.
        health = wait_until(counted)
        assert health.status is ClusterHealthStatus.GREEN
        assert health.replicas == health.in_sync_replicas >= health.buckets
        last = status_lines(server)[-1]
        assert last == (
            f"Fluss cluster: Green, buckets with a leader that serves: {health.buckets} of {health.buckets}, "
            f"replicas in sync: {health.replicas} of {health.replicas}"
        )
        client.drop_table(table.path, drop_untiered=True)


@pytest.mark.long
@pytest.mark.system
@pytest.mark.fluss_versions("1.0")
def test_buckets_without_a_leader_are_counted(fluss_cluster: FlussCluster, tmp_path: Path) -> None:
    with ClusterServer(tmp_path, fluss_cluster.bootstrap) as server, TieringClient(server.target) as client:
        table = lake_table(client, "leaderless", num_buckets=4, primary_key=False)
        # The buckets of a new table have no leaders for a moment, either.
        wait_until(lambda: health_with(ClusterHealthStatus.GREEN, client))
        killed = fluss_cluster.tablet_servers[1]
        killed.kill()
        try:
            red = wait_until(lambda: health_with(ClusterHealthStatus.RED, client))
            assert red.active_leaders < red.buckets
            assert status_lines(server)[-1].startswith("Fluss cluster: Red, ")
            # The server has the statuses, whatever is the matter with the cluster.
            assert table.path.table in "".join(status_lines(server, "--json"))
        finally:
            killed.start()
            fluss_cluster.wait_until_ready()
        client.drop_table(table.path, drop_untiered=True)


@pytest.mark.fluss_versions("0.9.1")
def test_a_cluster_that_does_not_tell_its_health_is_no_error(fluss_cluster: FlussCluster, tmp_path: Path) -> None:
    with ClusterServer(tmp_path, fluss_cluster.bootstrap) as server, TieringClient(server.target) as client:
        assert client.cluster_health() is None
        assert not any(line.startswith("Fluss cluster") for line in status_lines(server))


@pytest.mark.long
@pytest.mark.system
@pytest.mark.fluss_versions("1.0")
def test_a_coordinator_that_is_away_does_not_keep_statuses_back(fluss_cluster: FlussCluster, tmp_path: Path) -> None:
    with ClusterServer(tmp_path, fluss_cluster.bootstrap) as server, TieringClient(server.target) as client:
        # One that is stopped for longer than its session and goes on would never lead again, see the documentation.
        fluss_cluster.coordinator.kill()
        try:
            assert client.cluster_health() == ClusterHealth(ClusterHealthStatus.UNKNOWN, 0, 0, 0, 0)
            lines = status_lines(server)
            assert lines[-1].startswith("Fluss cluster: Unknown, its coordinator does not answer")
        finally:
            fluss_cluster.coordinator.start()
            fluss_cluster.wait_until_ready()
