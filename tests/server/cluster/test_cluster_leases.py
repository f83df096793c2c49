"""Leases that a real Fluss cluster keeps: what is leased here stays there, and goes once it is released.

The cluster takes a KV snapshot every 500 ms where there are new rows, and keeps one of each bucket.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_support import ClusterServer, exists, lake_table, next_snapshot, put, snapshot_behind

from engine_support import HOUR
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import KvSnapshot, TableInfo
from fluss_tiering.model.tiering import LeaseDrop
from fluss_tiering.server.backends.cluster.leases import cluster_lease_id
from fluss_tiering.storage.fluss.rpc.calls.kv import drop_lease, release_lease
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from waiting import wait_until

_AWAY = {ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER}


@pytest.fixture(scope="module")
def folder(fluss_cluster: FlussCluster, tmp_path_factory: pytest.TempPathFactory):
    return tmp_path_factory.mktemp(f"leases-{fluss_cluster.version}")


@pytest.fixture(scope="module")
def server(fluss_cluster: FlussCluster, folder) -> Iterator[ClusterServer]:
    with ClusterServer(folder / "shared", fluss_cluster.bootstrap) as running:
        yield running


@pytest.fixture
def table(client: TieringClient) -> Iterator[TableInfo]:
    made = lake_table(client, "leased", freshness="1h")
    put(client, made, 3)
    yield made
    client.drop_table(made.path, ignore_if_not_exists=True, drop_untiered=True)


def wait_until_gone(fluss: FlussClient, client: TieringClient, table: TableInfo, snapshot: KvSnapshot) -> None:
    """The cluster collects as it takes the next snapshot."""
    wait_until(lambda: next_snapshot(client, table) and not exists(fluss, snapshot))


def test_a_leased_snapshot_stays_until_it_is_released(client: TieringClient, table: TableInfo, fluss: FlussClient):
    unleased = snapshot_behind(client, table, 3)
    # What a slow round without a lease runs into.  # Fluss #2512
    wait_until_gone(fluss, client, table, unleased)

    leased = next_snapshot(client, table)
    acquired = client.acquire_lease("round/of a.slow driver", HOUR, {leased.bucket: leased.snapshot_id})
    assert acquired.unavailable_snapshots == {}
    later = next_snapshot(client, table)
    wait_until_gone(fluss, client, table, later)
    assert exists(fluss, leased)

    assert client.release_lease(acquired.lease_id, [leased.bucket], attempt_token=acquired.attempt_token)
    assert client.list_leases(acquired.lease_id) == []
    wait_until_gone(fluss, client, table, leased)


def test_a_late_release_unpins_nothing_of_a_newer_attempt(client: TieringClient, table: TableInfo, fluss: FlussClient):
    leased = snapshot_behind(client, table, 3)
    pins = {leased.bucket: leased.snapshot_id}
    first = client.acquire_lease("late", HOUR, pins)
    second = client.acquire_lease("late", HOUR, {}, allow_empty=True)
    assert not client.release_lease("late", [leased.bucket], attempt_token=first.attempt_token)  # L22
    # The same where it is the call to the cluster that comes late.
    for late in (drop_lease, lambda name: release_lease(name, [leased.bucket])):
        fluss.call(late(cluster_lease_id("late", first.attempt_token)))
    wait_until_gone(fluss, client, table, next_snapshot(client, table))
    assert exists(fluss, leased)
    assert client.drop_lease("late", attempt_token=second.attempt_token) is LeaseDrop.DROPPED
    wait_until_gone(fluss, client, table, leased)


def test_a_snapshot_that_is_not_there_is_not_pinned(
    server: ClusterServer, client: TieringClient, table: TableInfo
) -> None:
    bucket = snapshot_behind(client, table, 3).bucket
    acquired = client.acquire_lease("nothing", HOUR, {bucket: 4711})
    assert acquired.unavailable_snapshots == {bucket: 4711}  # L6
    assert client.list_leases("nothing") == []
    # Fluss pinned it without a look; that is taken back.
    name = cluster_lease_id("nothing", acquired.attempt_token)
    wait_until(lambda: name not in server.backend.leases._pinned)


def test_a_newer_snapshot_takes_the_place_of_the_older_one(client: TieringClient, table: TableInfo, fluss: FlussClient):
    older = snapshot_behind(client, table, 3)
    client.acquire_lease("twice", HOUR, {older.bucket: older.snapshot_id})
    newer = next_snapshot(client, table)
    client.acquire_lease("twice", HOUR, {newer.bucket: newer.snapshot_id})
    wait_until_gone(fluss, client, table, older)  # L2
    assert exists(fluss, newer)
    client.drop_lease("twice")


def test_a_renewal_pins_at_the_cluster_too(client: TieringClient, table: TableInfo, fluss: FlussClient) -> None:
    leased = snapshot_behind(client, table, 3)
    acquired = client.acquire_lease("renewed", HOUR, {leased.bucket: leased.snapshot_id})
    fluss.call(drop_lease(cluster_lease_id("renewed", acquired.attempt_token)))
    answers = client.renew_leases({"renewed": 2 * HOUR, "unknown": HOUR})  # L4
    assert answers["renewed"] > acquired.expiration_time
    assert answers["unknown"].code is ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST  # L5
    wait_until_gone(fluss, client, table, next_snapshot(client, table))
    assert exists(fluss, leased)
    client.drop_lease("renewed")


def test_what_expired_is_released_at_the_cluster(
    server: ClusterServer, client: TieringClient, table: TableInfo, fluss: FlussClient
) -> None:
    leased = snapshot_behind(client, table, 3)
    client.acquire_lease("expired", 1, {leased.bucket: leased.snapshot_id})
    books = server.components.managers.leases
    wait_until(lambda: server.run(server.components.threads.control(books.drop_expired)))  # L9
    wait_until_gone(fluss, client, table, leased)


def test_leases_outlive_the_server(
    fluss_cluster: FlussCluster, folder, client: TieringClient, table: TableInfo, fluss: FlussClient
) -> None:
    leased = snapshot_behind(client, table, 3)
    data_dir = folder / "restarted"
    with ClusterServer(data_dir, fluss_cluster.bootstrap) as running, TieringClient(running.target) as driver:
        token = driver.acquire_lease("restart", HOUR, {leased.bucket: leased.snapshot_id}).attempt_token
    wait_until_gone(fluss, client, table, next_snapshot(client, table))
    assert exists(fluss, leased)
    with ClusterServer(data_dir, fluss_cluster.bootstrap) as running, TieringClient(running.target) as driver:
        assert driver.release_lease("restart", [leased.bucket], attempt_token=token)  # L11, L17
        wait_until_gone(fluss, client, table, leased)


def test_an_expired_lease_is_not_gone_on_with(client: TieringClient, table: TableInfo) -> None:
    first = snapshot_behind(client, table, 3)
    client.acquire_lease("again", 1, {first.bucket: first.snapshot_id})
    wait_until(lambda: "expired" in str(client.renew_leases({"again": HOUR})["again"]))
    client.acquire_lease("again", HOUR, {}, allow_empty=True)
    assert client.list_leases("again") == []
