"""The health of a real Fluss cluster, and what a server in front of it exports, also while the cluster hangs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cluster_support import ClusterServer, claim, commit, finish, lake_table, put
from typer.testing import CliRunner

from fluss_support import FlussCluster
from fluss_tiering.cli.main import app
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import ClusterHealth, ClusterHealthStatus
from fluss_tiering.server.backends.cluster import backend
from metrics_support import scrape, value
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


def test_what_is_not_in_the_lake_is_told_while_the_cluster_hangs(
    fluss_cluster: FlussCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_LOG_ENDS_INTERVAL_MS", 100)
    with (
        ClusterServer(tmp_path, fluss_cluster.bootstrap, metrics_enabled=True, metrics_port=0) as server,
        TieringClient(server.target) as client,
    ):
        table = lake_table(client, "scraped", freshness="1h", primary_key=False)

        def pending() -> float:
            # Not there before the first look.
            name = "fluss_coordinator_lakeTiering_table_pendingRecords"
            samples = scrape(server.server.metrics_port)
            found = [number for labels, number in samples.get(name, []) if labels["table"] == table.path.table]
            return found[0] if found else -1

        put(client, table, 10)
        wait_until(lambda: pending() == 10)
        put(client, table, 5, first=10)
        wait_until(lambda: pending() == 15)
        held = claim(client, table)
        commit(client, table, held)
        finish(client, held)
        wait_until(lambda: pending() == 0)
        put(client, table, 1, first=15)
        wait_until(lambda: pending() == 1)
        tables = "fluss_coordinator_tableCount"
        wait_until(lambda: value(scrape(server.server.metrics_port), tables) >= 1)

        for each in fluss_cluster.servers:
            each.pause()
        try:
            time.sleep(3)  # by then, what was known has become old
            began = time.monotonic()
            assert pending() == 1
            assert value(scrape(server.server.metrics_port), tables) >= 1
            assert time.monotonic() - began < 20
        finally:
            for each in fluss_cluster.servers:
                each.resume()
        fluss_cluster.wait_until_ready()
        wait_until(lambda: client.drop_table(table.path, drop_untiered=True) in (1, None))
