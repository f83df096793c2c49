"""Lake snapshots that a real Fluss cluster knows, which checks nothing of what it is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from cluster_support import ClusterServer, claim, commit, finish, lake_table, put

from engine_support import log_ends, status
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.model.tiering import Claim
from fluss_tiering.storage.fluss.rpc.calls.lake import commit_lake_snapshot, lake_snapshot, prepare_lake_snapshot
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError


@pytest.fixture(scope="module")
def server(fluss_cluster: FlussCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServer]:
    with ClusterServer(tmp_path_factory.mktemp("lake"), fluss_cluster.bootstrap) as running:
        yield running


@pytest.fixture
def table(client: TieringClient) -> Iterator[TableInfo]:
    """A log table with 10 rows in its one bucket."""
    made = lake_table(client, "lake", freshness="1h", primary_key=False)
    put(client, made, 10)
    yield made
    client.drop_table(made.path, drop_untiered=True)


@pytest.fixture
def running(client: TieringClient, table: TableInfo) -> Claim:
    return claim(client, table)


def bucket(table: TableInfo) -> TableBucket:
    return TableBucket(table.table_id, 0)


def refused(code: ErrorCode, words: str, call) -> None:
    with pytest.raises(FlussTieringError, match=words) as refusal:
        call()
    assert refusal.value.code is code


def tier_elsewhere(fluss: FlussClient, table: TableInfo, snapshot_id: int, end: int) -> None:
    """As Flink's tiering service would."""
    offsets = {bucket(table): end}
    path = fluss.call(prepare_lake_snapshot(table.path, table.table_id, offsets))
    fluss.call(commit_lake_snapshot(table.table_id, snapshot_id, path, offsets))


def poison(fluss: FlussClient, table: TableInfo) -> None:
    """Commits an offsets file that does not exist, which makes the table's lake snapshots unreadable."""
    fluss.call(commit_lake_snapshot(table.table_id, 666, "file:///nowhere/gone.offsets", {bucket(table): 1}))
    with pytest.raises(FlussServerError):
        fluss.call(lake_snapshot(table.path))


def test_what_the_cluster_would_take_is_refused(
    client: TieringClient, table: TableInfo, running: Claim, fluss: FlussClient
) -> None:
    epoch, only = running.tiering_epoch, bucket(table)
    first = commit(client, table, running, {only: 5})
    path = client.prepare_lake_snapshot(table, epoch, {only: 6})

    def committed(offsets: Mapping[TableBucket, int], *, snapshot_id: int = 2, file: str = path, epoch: int = epoch):
        return lambda: client.commit_lake_snapshot(table, epoch, snapshot_id, offsets, file, "refused")

    refused(ErrorCode.INVALID_REQUEST, "is before", committed({only: 4}))
    refused(ErrorCode.LOG_OFFSET_OUT_OF_RANGE, "past the log's end", committed({only: 11}))
    refused(ErrorCode.INVALID_REQUEST, "has no", committed({TableBucket(table.table_id, 1): 1}))
    refused(ErrorCode.INVALID_REQUEST, "other offsets", committed({only: 6}, snapshot_id=first))
    refused(ErrorCode.INVALID_REQUEST, "does not exist", committed({only: 6}, file=f"{path}.gone"))
    assert "does not exist" in str(status(client, table).last_error)  # S10
    refused(ErrorCode.FENCED_TIERING_EPOCH, "not its present one", committed({only: 6}, epoch=epoch - 1))  # S5
    refused(ErrorCode.INVALID_REQUEST, "is before", lambda: client.prepare_lake_snapshot(table, epoch, {only: 4}))
    finish(client, running)
    refused(ErrorCode.INVALID_TIERING_STATE, "not Tiering", committed({only: 6}))  # Fluss #2648
    assert fluss.call(lake_snapshot(table.path)) == LakeSnapshot(table.table_id, first, {only: 5})


def test_a_repeated_commit_changes_nothing(
    client: TieringClient, table: TableInfo, running: Claim, fluss: FlussClient
) -> None:
    only = bucket(table)
    paths = {}
    for snapshot_id, end in ((1, 5), (2, 8)):
        paths[snapshot_id] = client.prepare_lake_snapshot(table, running.tiering_epoch, {only: end})
        for _ in range(2):
            client.commit_lake_snapshot(
                table, running.tiering_epoch, snapshot_id, {only: end}, paths[snapshot_id], f"commit-{snapshot_id}"
            )
    # The older one's answer was lost, and its driver comes back late.
    client.commit_lake_snapshot(table, running.tiering_epoch, 1, {only: 5}, paths[1], "commit-1")
    newest = LakeSnapshot(table.table_id, 2, {only: 8})
    assert client.lake_snapshot(table.path) == fluss.call(lake_snapshot(table.path)) == newest
    # It was the call to the cluster itself that came late: whoever recovers puts it right.
    fluss.call(commit_lake_snapshot(table.table_id, 1, paths[1], {only: 5}))
    assert client.lake_snapshot(table.path) == LakeSnapshot(table.table_id, 1, {only: 5})
    client.commit_lake_snapshot(table, running.tiering_epoch, 2, {only: 8}, paths[2], "commit-2")
    assert client.lake_snapshot(table.path) == fluss.call(lake_snapshot(table.path)) == newest


def test_a_commit_that_the_store_did_not_take_is_repeated(
    server: ClusterServer, client: TieringClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake_table(client, "lake", freshness="1h", primary_key=False, num_buckets=2)
    put(client, table, 10)
    running = claim(client, table)
    first, second = log_ends(client, table).items()
    commit(client, table, running, dict([first]))
    # A commit names no more than what it changes.
    path = client.prepare_lake_snapshot(table, running.tiering_epoch, dict([second]))

    def full(*_arguments: object) -> None:
        raise FlussTieringError(ErrorCode.STORAGE, "the disk is full")

    def call() -> None:
        client.commit_lake_snapshot(table, running.tiering_epoch, 3, dict([second]), path, "commit")

    lake = server.components.managers.lake
    with monkeypatch.context() as patched:
        patched.setattr(lake, "record", full)
        refused(ErrorCode.STORAGE, "full", call)
    call()
    known = lake.known(table.table_id, 3)
    assert known is not None
    assert known.unpack() == client.lake_snapshot(table.path)
    assert client.lake_snapshot(table.path) == LakeSnapshot(table.table_id, 3, dict([first, second]))
    client.drop_table(table.path)


def test_a_server_that_no_longer_leads_tells_the_cluster_nothing(
    server: ClusterServer, client: TieringClient, table: TableInfo, running: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = log_ends(client, table)
    path = client.prepare_lake_snapshot(table, running.tiering_epoch, offsets)

    def superseded() -> None:
        raise FlussTieringError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another server took over")

    # Between its last look at the round and the call.
    monkeypatch.setattr(server.backend.lake, "_check", superseded)
    refused(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "took over",
        lambda: client.commit_lake_snapshot(table, running.tiering_epoch, 4, offsets, path, "commit"),
    )
    assert client.lake_snapshot(table.path) is None


def test_others_tier_in_turn(client: TieringClient, table: TableInfo, running: Claim, fluss: FlussClient) -> None:
    only = bucket(table)
    commit(client, table, running, {only: 3})
    tier_elsewhere(fluss, table, 77, 6)
    assert client.lake_snapshot(table.path) == LakeSnapshot(table.table_id, 77, {only: 6})
    refused(ErrorCode.INVALID_REQUEST, "is before", lambda: commit(client, table, running, {only: 5}))
    ours = commit(client, table, running, {only: 9})
    assert fluss.call(lake_snapshot(table.path)) == LakeSnapshot(table.table_id, ours, {only: 9})


def test_offsets_that_the_cluster_cannot_read_are_replaced(
    client: TieringClient, table: TableInfo, running: Claim, fluss: FlussClient
) -> None:
    only = bucket(table)
    first = commit(client, table, running, {only: 5})
    poison(fluss, table)
    # What this server knows: a driver compares it with the lake table.
    assert client.lake_snapshot(table.path) == LakeSnapshot(table.table_id, first, {only: 5})
    refused(ErrorCode.INVALID_REQUEST, "is before", lambda: commit(client, table, running, {only: 4}))
    second = commit(client, table, running, {only: 9})
    assert fluss.call(lake_snapshot(table.path)) == LakeSnapshot(table.table_id, second, {only: 9})

    # The snapshot that a driver found in the lake is registered too, though its own file is gone.
    poison(fluss, table)
    client.commit_lake_snapshot(
        table, running.tiering_epoch, 99, {only: 10}, "file:///nowhere/gone.offsets", "found in the lake"
    )
    assert fluss.call(lake_snapshot(table.path)) == LakeSnapshot(table.table_id, 99, {only: 10})


def test_offsets_of_a_table_that_was_never_tiered_here_are_replaced(
    client: TieringClient, table: TableInfo, running: Claim, fluss: FlussClient
) -> None:
    poison(fluss, table)
    assert client.lake_snapshot(table.path) is None
    snapshot_id = commit(client, table, running)
    assert fluss.call(lake_snapshot(table.path)) == LakeSnapshot(table.table_id, snapshot_id, {bucket(table): 10})
