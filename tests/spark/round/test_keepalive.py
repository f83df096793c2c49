"""Leases and rounds are kept alive from outside the rounds, and a round hears when it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.retry import RetryingClient
from fluss_tiering.spark.round.keepalive import KeepAlive, RoundGuard
from fluss_tiering.spark.round.lease import Lease, Releaser, TableLease
from waiting import WAIT_S, wait_until

LEASE_MS = 3000
"""Long enough to be renewed on a machine that pauses for a second."""


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[ServerThread]:
    with ServerThread(tmp_path_factory.mktemp("keepalive") / "data", lake_catalog={"type": "hadoop"}) as running:
        yield running


@pytest.fixture
def client(server: ServerThread) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected


def claim(client: TieringClient, table: TableInfo, lease_id: str, token: int | None = None):
    (claimed,) = client.claim_tables([table.path], lease_id, token, "test")
    assert not isinstance(claimed, FlussTieringError), claimed
    return claimed


def leased(client: TieringClient, lease_id: str) -> tuple[TableInfo, Lease]:
    table = new_table(client, [1, 2, 3])
    acquired = lease_latest_snapshots(client, lease_id, [table.path], LEASE_MS)
    return table, Lease(lease_id, acquired.attempt_token, LEASE_MS)


# L16
@pytest.mark.slow
def test_a_lease_is_renewed_as_long_as_it_is_held(client: TieringClient):
    table, lease = leased(client, "renewed")
    (acquired,) = client.list_leases("renewed")
    with KeepAlive(client, LEASE_MS) as keepalive:
        keepalive.hold(lease.lease_id, table.table_id)
        wait_until(lambda: client.list_leases("renewed")[0].expiration_time >= acquired.expiration_time + LEASE_MS)
        keepalive.let_go(lease.lease_id, table.table_id)
        time.sleep(LEASE_MS / 3000)
        (renewed,) = client.list_leases("renewed")
        time.sleep(2 * LEASE_MS / 3000)

        assert client.list_leases("renewed") == [renewed]


# L16, L24: a lease that spans tables
@pytest.mark.slow
def test_a_lease_is_renewed_until_the_last_of_its_tables_lets_go(client: TieringClient):
    table, lease = leased(client, "spanning")
    with KeepAlive(client, LEASE_MS) as keepalive:
        keepalive.hold(lease.lease_id, table.table_id)
        keepalive.hold(lease.lease_id, table.table_id + 1)
        keepalive.let_go(lease.lease_id, table.table_id + 1)
        (held,) = client.list_leases("spanning")

        wait_until(lambda: client.list_leases("spanning")[0].expiration_time >= held.expiration_time + LEASE_MS)


# L5
def test_the_round_of_a_lost_lease_is_stopped_and_no_other(client: TieringClient):
    table, lease = leased(client, "lost")
    other, _ = leased(client, "kept")
    stopped = threading.Event()
    guard, kept = (
        RoundGuard(claim(client, table, "lost"), stopped.set),
        RoundGuard(claim(client, other, "kept"), pytest.fail),
    )
    with KeepAlive(client, LEASE_MS) as keepalive:
        for each, lease_id in ((guard, "lost"), (kept, "kept")):
            keepalive.watch(each)
            keepalive.hold(lease_id, each.claim.table_id)
        client.drop_lease(lease.lease_id)

        assert stopped.wait(WAIT_S)
    with pytest.raises(FlussTieringError) as raised:
        guard.check()
    assert raised.value.code is ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST
    kept.check()


# S4, S5
def test_heartbeats_are_batched_and_a_fenced_round_is_stopped(client: TieringClient, monkeypatch):
    beats = []
    heartbeat = client.heartbeat

    def record(**kwargs):
        beats.append([entry.table_id for entry in kwargs["tiering"]])
        return heartbeat(**kwargs)

    monkeypatch.setattr(client, "heartbeat", record)
    tables = [new_table(client) for _ in range(2)]
    stopped = threading.Event()
    guards = [RoundGuard(claim(client, table, "beats"), stopped.set) for table in tables]
    with KeepAlive(client, LEASE_MS, heartbeat_interval_s=0.1) as keepalive:
        for guard in guards:
            keepalive.watch(guard)
        wait_until(lambda: [table.table_id for table in tables] in [sorted(beat) for beat in beats])
        assert not stopped.is_set()
        claim(client, tables[0], "beats")

        assert stopped.wait(WAIT_S)
    with pytest.raises(FlussTieringError) as raised:
        guards[0].check()
    assert raised.value.code is ErrorCode.FENCED_TIERING_EPOCH
    guards[1].check()


# regression: Fluss #3681, one transient error ends the job
def test_a_server_that_is_away_for_a_moment_stops_no_round(client: TieringClient, monkeypatch):
    heartbeat = client.heartbeat
    answers = iter([FlussTieringError(ErrorCode.UNAVAILABLE, "away")] * 3)
    after = threading.Event()

    def flaky(**kwargs):
        if error := next(answers, None):
            raise error
        after.set()
        return heartbeat(**kwargs)

    monkeypatch.setattr(client, "heartbeat", flaky)
    guard = RoundGuard(claim(client, new_table(client), "flaky"), pytest.fail)
    with KeepAlive(client, LEASE_MS, heartbeat_interval_s=0.05, retry_s=0.05) as keepalive:
        keepalive.watch(guard)
        assert after.wait(WAIT_S)
    guard.check()


# Fluss #3681
def test_a_round_calls_an_unavailable_server_again_until_it_is_told_to_stop(server: ServerThread, monkeypatch):
    call, left = TieringClient._call, [3]
    stopped = threading.Event()

    def flaky(self, *arguments):
        left[0] -= 1
        if left[0] >= 0:
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "away")
        return call(self, *arguments)

    monkeypatch.setattr(TieringClient, "_call", flaky)
    with RetryingClient(server.target, stopped=stopped) as client:
        assert client.describe_storage()
        assert left == [-1]

        left[0] = 100
        stopped.set()
        with pytest.raises(FlussTieringError, match="away"):
            client.describe_storage()
        assert left == [99]


# L13, L14: a release that fails is tried again, and nobody waits for it
def test_a_failed_release_is_tried_again_until_it_is_confirmed(client: TieringClient, monkeypatch):
    table, lease = leased(client, "released late")
    (pinned,) = client.list_leases("released late")
    release = client.release_lease
    failures = iter([FlussTieringError(ErrorCode.UNAVAILABLE, "away")] * 2)
    returned = threading.Event()
    waited_for = []

    def flaky(*args, **kwargs):
        waited_for.append(not returned.wait(WAIT_S))
        if error := next(failures, None):
            raise error
        return release(*args, **kwargs)

    monkeypatch.setattr(client, "release_lease", flaky)
    with KeepAlive(client, LEASE_MS) as keepalive, Releaser(client) as releaser:
        part = TableLease(client, keepalive, lease, table)
        part.hold(set(pinned.snapshots))
        part.release(releaser)
        returned.set()
    assert waited_for == [False] * 3
    assert client.list_leases("released late") == []


def test_what_cannot_be_released_when_the_application_ends_is_left_to_its_expiry(
    client: TieringClient, monkeypatch, caplog
):
    table, lease = leased(client, "never released")
    (pinned,) = client.list_leases("never released")

    def away(*_args, **_kwargs):
        raise FlussTieringError(ErrorCode.UNAVAILABLE, "away")

    monkeypatch.setattr(client, "release_lease", away)
    with KeepAlive(client, LEASE_MS) as keepalive, Releaser(client, close_timeout_s=0.2) as releaser:
        part = TableLease(client, keepalive, lease, table)
        part.hold(set(pinned.snapshots))
        part.release(releaser)

    assert "lease never released keeps 1 bucket until it expires" in caplog.text


# L7
def test_a_leased_snapshot_that_is_gone_is_replaced_by_the_latest(client: TieringClient, monkeypatch):
    table, lease = leased(client, "gone")
    metadata = client.kv_snapshot_metadata
    gone = iter([FlussTieringError(ErrorCode.KV_SNAPSHOT_NOT_EXIST, "gone")])

    def first_is_gone(*args):
        if error := next(gone, None):
            raise error
        return metadata(*args)

    monkeypatch.setattr(client, "kv_snapshot_metadata", first_is_gone)
    claimed = claim(client, table, lease.lease_id, lease.attempt_token)
    with KeepAlive(client, LEASE_MS) as keepalive:
        part = TableLease(client, keepalive, lease, table)
        found = part.snapshots(claimed, client.list_buckets([table.path])[table.path])

    (snapshot,) = found.values()
    own = f"gone/{table.table_id}.{claimed.tiering_epoch}"
    assert client.list_leases(own)[0].snapshots == {snapshot.bucket: snapshot.snapshot_id}
