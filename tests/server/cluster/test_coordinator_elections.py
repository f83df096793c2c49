"""The leader among several coordinators of Fluss 1.0 is killed in each step of a round. Takes minutes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from cluster_support import ClusterServer, claim, commit, finish, lake_table, put, wait_for

from engine_support import log_ends, status
from fluss_support import FlussCluster, FlussServer
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.lake import lake_snapshot
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs
from waiting import wait_until

LOG = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.fluss_versions("1.0"),
    pytest.mark.long,
    pytest.mark.system,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
@needs("cluster")
def cluster(fluss_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlussCluster]:
    """With two coordinators, of which one leads."""
    with FlussCluster(tmp_path_factory.mktemp("elections"), version=fluss_version) as started:
        started.second_coordinator.start()
        wait_until(lambda: "CoordinatorLeaderElection" in started.second_coordinator.log_file.read_text())
        yield started


@pytest.fixture(scope="module")
def server(cluster: FlussCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServer]:
    """Knows both coordinators and no tablet server."""
    addresses = f"localhost:{cluster.coordinator.port},localhost:{cluster.second_coordinator.port}"
    with ClusterServer(tmp_path_factory.mktemp("server"), addresses) as running:
        yield running


@pytest.fixture
def client(server: ClusterServer) -> Iterator[TieringClient]:
    with TieringClient(server.target, timeout=60) as connected:
        yield connected


def leader_of(cluster: FlussCluster) -> FlussServer:
    """The coordinator that leads, as a fresh client finds it that knows both."""
    coordinators = [cluster.coordinator, cluster.second_coordinator]
    with FlussClient(",".join(f"localhost:{each.port}" for each in coordinators if each.running)) as fluss:
        known = fluss.call(metadata()).coordinator
    assert known is not None
    return next(each for each in coordinators if each.port == known.port)


def leads_another(cluster: FlussCluster, killed: FlussServer) -> bool:
    """Whether the coordinator that was killed is no longer said to lead."""
    try:
        return leader_of(cluster) is not killed
    except FlussTieringError:
        return False


def kill_leader(cluster: FlussCluster) -> FlussServer:
    killed = leader_of(cluster)
    killed.kill()
    return killed


def bring_back(cluster: FlussCluster, killed: FlussServer) -> None:
    """Starts it again, and waits until another one leads and it stands by."""
    written = killed.log_file.stat().st_size
    killed.start()
    wait_until(lambda: b"CoordinatorLeaderElection" in killed.log_file.read_bytes()[written:])
    wait_until(lambda: leads_another(cluster, killed))


def patiently(call):
    """As a driver does, which tries again while the cluster is away."""

    def worked():
        try:
            return (call(),)
        except FlussTieringError as error:
            if error.code not in {ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER}:
                raise
            return None

    return wait_until(worked)[0]


@pytest.fixture
def table(client: TieringClient) -> TableInfo:
    made = lake_table(client, "elected", primary_key=False, num_buckets=2)
    put(client, made, 10)
    wait_for(client, made, TieringState.PENDING)
    return made


@pytest.mark.parametrize("step", ["pending", "claimed", "prepared", "committed", "finished"])
def test_the_leader_is_killed_in_each_step_of_a_round(
    cluster: FlussCluster, client: TieringClient, table: TableInfo, step: str
) -> None:
    killed: list[FlussServer] = []
    since: list[float] = []

    def at(name: str) -> None:
        if name == step:
            killed.append(kill_leader(cluster))
            since.append(time.monotonic())

    at("pending")
    running = claim(client, table)
    at("claimed")
    offsets = patiently(lambda: log_ends(client, table))
    path = patiently(lambda: client.prepare_lake_snapshot(table, running.tiering_epoch, offsets))
    at("prepared")
    snapshot_id = 4000 + running.table_id
    patiently(
        lambda: client.commit_lake_snapshot(table, running.tiering_epoch, snapshot_id, offsets, path, f"at {step}")
    )
    at("committed")
    finish(client, running)
    at("finished")
    wait_until(lambda: leads_another(cluster, killed[0]))
    LOG.info("killed at %s: served again after %.1f s", step, time.monotonic() - since[0])

    with FlussClient(f"localhost:{leader_of(cluster).port}") as fluss:
        expected = LakeSnapshot(table.table_id, snapshot_id, offsets)
        assert patiently(lambda: fluss.call(lake_snapshot(table.path))) == expected
    assert status(client, table).last_error is None
    # The next round is offered by the new leader, and begins where this one ended.
    again = wait_for(client, table, TieringState.PENDING)
    assert again.tiering_epoch == running.tiering_epoch + 1  # S3
    put(client, table, 5, first=10)
    held = claim(client, table)
    following = patiently(lambda: commit(client, table, held))
    finish(client, held)
    newest = client.lake_snapshot(table.path)
    assert newest == LakeSnapshot(table.table_id, following, log_ends(client, table))
    assert sum(newest.log_end_offsets.values()) == 15
    client.drop_table(table.path)
    bring_back(cluster, killed[0])
