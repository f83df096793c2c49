"""A second coordinator that takes the place of one that died in mid-round, at another address. Takes half a minute.

Fluss 0.9.1 elects no leader among coordinators: the second one waits at its start, 60 s at most, until the first one's
entry in ZooKeeper is gone (`CoordinatorServer.registerCoordinatorLeader`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_support import ClusterServer, claim, commit, entry_of, finish, lake_table, put, wait_for

from engine_support import log_ends, status
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.lake import lake_snapshot
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs
from waiting import wait_until

pytestmark = [pytest.mark.system, pytest.mark.long]

_WAITING = {
    "0.9.1": "Coordinator server already registered in Zookeeper",
    "1.0": "CoordinatorLeaderElection",
}


@pytest.fixture
@needs("cluster")
def cluster(fluss_version: str, tmp_path: Path) -> Iterator[FlussCluster]:
    """Of its own, since its coordinator does not come back."""
    with FlussCluster(tmp_path / "cluster", version=fluss_version) as started:
        yield started


@pytest.mark.parametrize("waits", [True, False], ids=["one that waited", "one that was started then"])
def test_another_coordinator_takes_over_in_mid_round(cluster: FlussCluster, tmp_path: Path, waits: bool) -> None:
    second = cluster.second_coordinator
    addresses = f"{cluster.bootstrap},localhost:{second.port}"
    with ClusterServer(tmp_path / "server", addresses) as server, TieringClient(server.target) as client:
        table = lake_table(client, "taken_over", primary_key=False, num_buckets=2)
        put(client, table, 10)
        wait_for(client, table, TieringState.PENDING)
        running = claim(client, table)
        offsets = log_ends(client, table)
        path = client.prepare_lake_snapshot(table, running.tiering_epoch, offsets)
        if waits:
            second.start()
            wait_until(lambda: _WAITING[cluster.version] in second.log_file.read_text())
            for _ in range(5):
                # Whichever is asked first: the one that waits says that it is not ready.
                with FlussClient(addresses) as fluss:
                    known = fluss.call(metadata()).coordinator
                    assert known is not None
                    assert known.port == cluster.coordinator.port
        cluster.coordinator.kill()
        if not waits:
            second.start()
        wait_until(lambda: cluster.is_led_by(second))

        client.commit_lake_snapshot(table, running.tiering_epoch, 7, offsets, path, "under another coordinator")
        finish(client, running)

        with FlussClient(f"localhost:{second.port}") as fluss:
            assert fluss.call(lake_snapshot(table.path)) == LakeSnapshot(table.table_id, 7, offsets)
            # Handed out by the new one, which counts from 1 again; we do not.
            again = wait_for(client, table, TieringState.PENDING)
            assert again.tiering_epoch == running.tiering_epoch + 1  # S3
            assert entry_of(server, table).tiering_epoch in {1, 2}
            put(client, table, 5, first=10)
            # Nothing goes back, nothing is committed twice.
            held = claim(client, table)
            with pytest.raises(FlussTieringError, match="is before") as refusal:
                commit(client, table, held, dict.fromkeys(offsets, 0))
            assert refusal.value.code is ErrorCode.INVALID_REQUEST
            snapshot_id = commit(client, table, held)
            finish(client, held)
            assert fluss.call(lake_snapshot(table.path)) == LakeSnapshot(
                table.table_id, snapshot_id, log_ends(client, table)
            )
        assert status(client, table).last_error is None
