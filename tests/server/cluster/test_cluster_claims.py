"""The server as the tiering service of a real Fluss cluster: what it holds, and how rounds go on through failures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_support import ClusterServer, claim, commit, entry_of, fail, finish, lake_table, put, wait_for
from refusals import refused

from engine_support import ServerProcess, descriptor, log_ends, status
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.server.backends.cluster import lake
from fluss_tiering.storage.fluss.rpc.calls.lake import heartbeat, lake_snapshot
from fluss_tiering.storage.fluss.rpc.calls.tables import drop_table
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from waiting import wait_until


@pytest.fixture(scope="module")
def server(fluss_cluster: FlussCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServer]:
    folder = tmp_path_factory.mktemp("claims")
    settings = {"failure_backoff_base": 1000, "max_consecutive_failures": 2}
    with ClusterServer(folder, fluss_cluster.bootstrap, **settings) as running:
        yield running


@pytest.fixture
def table(client: TieringClient) -> Iterator[TableInfo]:
    """A log table with rows, Pending."""
    made = lake_table(client, "claimed", primary_key=False)
    put(client, made, 10)
    wait_for(client, made, TieringState.PENDING)
    yield made
    client.drop_table(made.path, ignore_if_not_exists=True, drop_untiered=True)


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


def test_a_failed_table_stays_held_while_it_rests(
    server: ClusterServer, client: TieringClient, table: TableInfo, fluss: FlussClient
) -> None:
    held = entry_of(server, table)
    fail(client, claim(client, table))
    rests = status(client, table)
    assert (rests.state, rests.last_error) == (TieringState.FAILED, "no such catalog")  # S10, S18
    # Given back, it would be offered again by this very request.
    assert fluss.call(heartbeat(request_table=True)).claim is None
    again = wait_for(client, table, TieringState.PENDING)
    assert again.tiering_epoch == 2  # S3
    assert entry_of(server, table) is held, "never given back, never handed out again"

    fail(client, claim(client, table))
    assert status(client, table).parked  # S19
    time.sleep(1.2)  # longer than a turn, and than the table's freshness
    assert fluss.call(heartbeat(request_table=True)).claim is None
    assert entry_of(server, table) is held
    client.resume_tables([table.path])
    finish(client, claim(client, table))
    wait_until(lambda: not server.holds(table) or entry_of(server, table) is not held)


def test_a_forced_finish_keeps_hold_of_the_table(
    server: ClusterServer, client: TieringClient, table: TableInfo
) -> None:
    held = entry_of(server, table)
    finish(client, claim(client, table), forced=True)
    assert status(client, table).state is TieringState.PENDING  # S8
    time.sleep(1.2)
    assert entry_of(server, table) is held


def test_a_table_that_is_not_due_is_tiered_by_name(server: ClusterServer, client: TieringClient) -> None:
    table = lake_table(client, "named", freshness="1h", primary_key=False)
    put(client, table, 10)
    time.sleep(1.2)
    assert status(client, table).state is TieringState.SCHEDULED, "the cluster decides what is due"
    held = claim(client, table)
    snapshot_id = commit(client, table, held)
    finish(client, held)
    assert not server.holds(table)
    known = client.lake_snapshot(table.path)
    assert known is not None
    assert known.snapshot_id == snapshot_id
    assert status(client, table).state is TieringState.SCHEDULED
    client.drop_table(table.path)


def test_what_is_held_is_kept_alive_until_the_coordinator_refuses_it(
    server: ClusterServer,
    client: TieringClient,
    table: TableInfo,
    fluss: FlussClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server.backend.claims, "_heartbeat_s", 0.1)
    held = entry_of(server, table)
    kept_alive = server.backend.claims._held[table.table_id].kept_alive
    wait_until(lambda: server.backend.claims._held[table.table_id].kept_alive > kept_alive + 1)
    assert entry_of(server, table) is held
    # Somebody else ends it, as a coordinator that started again would have forgotten it.
    fluss.call(heartbeat(finished=[held]))
    wait_until(lambda: server.holds(table) and entry_of(server, table).tiering_epoch == 2)
    # All the while it was Pending here, under one epoch.
    assert (status(client, table).state, status(client, table).tiering_epoch) == (TieringState.PENDING, 1)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_claim_is_kept_for_longer_than_the_coordinators_time_out(
    server: ClusterServer, table: TableInfo, fluss: FlussClient
) -> None:
    held = entry_of(server, table)
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        # A table of another test may be due meanwhile.
        claimed = fluss.call(heartbeat(request_table=True)).claim
        assert claimed is None or claimed.table_id != table.table_id
        time.sleep(1)
    assert entry_of(server, table) is held


@pytest.mark.system
def test_a_round_outlives_the_coordinator(
    server: ClusterServer,
    client: TieringClient,
    table: TableInfo,
    fluss: FlussClient,
    fluss_cluster: FlussCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = claim(client, table)
    offsets = log_ends(client, table)
    path = client.prepare_lake_snapshot(table, running.tiering_epoch, offsets)
    fluss_cluster.coordinator.kill()
    # One try, and a short one, instead of the client's.
    monkeypatch.setattr(lake, "_WITHIN_S", 0.5)
    with pytest.raises(FlussTieringError) as refusal:
        server.run(server.backend.lake.newest(table))
    monkeypatch.undo()
    assert refusal.value.code in {ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    fluss_cluster.coordinator.start()
    fluss_cluster.wait_until_ready()
    client.commit_lake_snapshot(table, running.tiering_epoch, 7, offsets, path, "over a restart")
    finish(client, running)
    assert fluss.call(lake_snapshot(table.path)) == LakeSnapshot(table.table_id, 7, offsets)
    # The coordinator counts from 1 again, we do not.
    again = wait_for(client, table, TieringState.PENDING)
    assert again.tiering_epoch == 2  # S3
    # Handed out after the restart for the first time, or for the second where it was due before the round ended.
    assert entry_of(server, table).tiering_epoch in {1, 2}
    # Offsets still do not go back, whatever the coordinator forgot.
    with pytest.raises(FlussTieringError, match="is before"):
        commit(client, table, claim(client, table), dict.fromkeys(offsets, 1))
    assert client.lake_snapshot(table.path) == LakeSnapshot(table.table_id, 7, offsets)


@pytest.mark.system
def test_a_round_outlives_this_server(
    fluss_cluster: FlussCluster, tmp_path: Path, fluss: FlussClient, server: ClusterServer
) -> None:
    process = ServerProcess(tmp_path, FLUSS_TIERING_FLUSS=fluss_cluster.bootstrap).start()
    try:
        with TieringClient(process.target) as driver:
            table = lake_table(driver, "restarted", freshness="1h", primary_key=False)
            put(driver, table, 10)
            running = claim(driver, table)
            offsets = log_ends(driver, table)
            path = driver.prepare_lake_snapshot(table, running.tiering_epoch, offsets)
            process.kill()
            process.start()
            driver.commit_lake_snapshot(table, running.tiering_epoch, 8, offsets, path, "over a kill")
            finish(driver, running)
            assert fluss.call(lake_snapshot(table.path)) == LakeSnapshot(table.table_id, 8, offsets)
            (ended,) = driver.list_tiering_rounds(table.path)  # S24
            assert (ended.state, ended.tiering_epoch) == (TieringState.TIERED, 1)
            driver.drop_table(table.path, drop_untiered=True)
    finally:
        process.stop()


def test_a_table_that_is_dropped_in_mid_round(
    server: ClusterServer, client: TieringClient, table: TableInfo, fluss: FlussClient
) -> None:
    running = claim(client, table)
    offsets = log_ends(client, table)
    path = client.prepare_lake_snapshot(table, running.tiering_epoch, offsets)
    # By another client, so that nobody tells this server.
    fluss.call(drop_table(table.path))
    with pytest.raises(FlussTieringError) as refusal:
        client.commit_lake_snapshot(table, running.tiering_epoch, 9, offsets, path, "too late")
    assert refusal.value.code is ErrorCode.TABLE_NOT_EXIST  # S5
    with refused(ErrorCode.TABLE_NOT_EXIST):
        client.prepare_lake_snapshot(table, running.tiering_epoch, offsets)

    # A later one of its name is another one; not a lake table, since the lake's is still there.
    later = client.create_table(table.path, descriptor(primary_key=False, tiered=False))
    wait_until(lambda: not server.holds(table))
    assert later.table_id != table.table_id
    with refused(ErrorCode.TABLE_NOT_EXIST):
        client.commit_lake_snapshot(table, running.tiering_epoch, 9, offsets, path, "too late")
    # Also where nobody here has noticed yet.
    with pytest.raises(FlussTieringError, match=f"is table {later.table_id} now") as refusal:
        server.run(server.backend.lake.prepare(table, running.tiering_epoch, offsets, ignore_previous=False))
    assert refusal.value.code is ErrorCode.TABLE_NOT_EXIST
    assert client.lake_snapshot(table.path) is None
    (ended,) = client.list_tiering_rounds(lease_id="lease", path=table.path)
    assert (ended.state, ended.error) == (TieringState.FAILED, "the table was dropped")  # S12, S20
