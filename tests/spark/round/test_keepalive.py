"""Leases and rounds are kept alive from outside the rounds, and a round hears when it is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.retry import RetryingClient
from fluss_tiering.spark.round.keepalive import KeepAlive, RoundGuard
from fluss_tiering.spark.round.lease import Lease
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


# L5
@pytest.mark.slow
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


# Fluss #3681
@pytest.mark.slow
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
