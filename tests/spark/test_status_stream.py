"""A round that is ended at the server stops by the stream of statuses, long before its next heartbeat."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import grpc
import pytest

from engine_support import ServerThread, new_path, new_table
from fault_proxy import FaultProxy, refused
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import Claim, StatusChanges
from fluss_tiering.spark.round.keepalive import KeepAlive, RoundGuard
from fluss_tiering.spark.status_stream import StatusStream
from waiting import WAIT_S, wait_until

NEVER_S = 100 * WAIT_S
LEASE_MS = 600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(tmp_path_factory.mktemp("statuses") / "data", lake_catalog={"type": "hadoop"}) as running:
        yield running


@pytest.fixture
def client(server: ServerThread) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected


@pytest.fixture
def keepalive(client: TieringClient) -> Iterator[KeepAlive]:
    with KeepAlive(client, LEASE_MS, heartbeat_interval_s=NEVER_S) as running:
        yield running


class Round:
    """A round that only its guard stops."""

    def __init__(self, client: TieringClient, keepalive: KeepAlive, lease_id: str) -> None:
        self.table: TableInfo = new_table(client, [1])
        (claim,) = client.claim_tables([self.table.path], lease_id, None, "driver")
        assert isinstance(claim, Claim)
        self.stopped = threading.Event()
        self.guard = RoundGuard(claim, self.stopped.set)
        keepalive.watch(self.guard)


def rounds(client: TieringClient, keepalive: KeepAlive) -> tuple[Round, Round, list[TablePath]]:
    """Return two rounds under different leases, and their tables."""
    lease = str(new_path())
    ends, goes_on = Round(client, keepalive, f"{lease} ends"), Round(client, keepalive, f"{lease} goes on")
    return ends, goes_on, [ends.table.path, goes_on.table.path]


def cancel(client: TieringClient, each: Round) -> None:
    (running,) = client.list_tiering_rounds(each.table.path)
    client.cancel_tiering(running.lease_id, None, "no longer wanted")


def assert_stopped(each: Round) -> None:
    assert each.stopped.wait(WAIT_S)
    with pytest.raises(FlussTieringError):
        each.guard.check()


def test_a_cancelled_round_stops_and_the_others_go_on(client: TieringClient, keepalive: KeepAlive) -> None:  # D66
    ends, goes_on, tables = rounds(client, keepalive)
    with StatusStream(client, tables, keepalive.hear):
        cancel(client, ends)
        assert_stopped(ends)
    with pytest.raises(FlussTieringError, match="no longer wanted"):
        ends.guard.check()
    goes_on.guard.check()


def test_a_round_that_ended_before_the_stream_began_stops(client: TieringClient, keepalive: KeepAlive) -> None:  # D66
    ends, goes_on, tables = rounds(client, keepalive)
    cancel(client, ends)
    with StatusStream(client, tables, keepalive.hear):
        assert_stopped(ends)
    goes_on.guard.check()


def test_a_round_whose_table_was_dropped_before_the_stream_began_stops(
    client: TieringClient, keepalive: KeepAlive
) -> None:  # D66
    dropped, goes_on, tables = rounds(client, keepalive)
    client.drop_table(dropped.table.path, drop_untiered=True)
    with StatusStream(client, tables, keepalive.hear):
        assert_stopped(dropped)
    goes_on.guard.check()


def test_a_dropped_table_takes_the_news_from_no_other(client: TieringClient, keepalive: KeepAlive) -> None:  # D66
    dropped, ends, tables = rounds(client, keepalive)
    never = [new_path(), new_table(client, properties={"table.datalake.enabled": "false"}).path]
    with StatusStream(client, [*never, *tables], keepalive.hear):
        client.drop_table(dropped.table.path, drop_untiered=True)
        assert_stopped(dropped)
        cancel(client, ends)
        assert_stopped(ends)


@pytest.mark.slow
def test_a_stream_that_breaks_is_opened_again(  # D66
    server: ServerThread, client: TieringClient, keepalive: KeepAlive
) -> None:
    ends, goes_on, tables = rounds(client, keepalive)
    with FaultProxy(server.target) as proxy, TieringClient(proxy.target) as through:
        proxy.faults["WatchTieringStatuses"] = refused(grpc.StatusCode.UNAVAILABLE, "too many watchers", times=3)
        with StatusStream(through, tables, keepalive.hear):
            wait_until(lambda: proxy.calls["WatchTieringStatuses"] > 3)
            cancel(client, ends)
            assert_stopped(ends)
    goes_on.guard.check()


def test_a_stream_about_no_table_is_not_opened(server: ServerThread, keepalive: KeepAlive) -> None:  # D66
    """Without a table the server would send all statuses."""
    with FaultProxy(server.target) as proxy, TieringClient(proxy.target) as through:
        stream = StatusStream(through, [new_path()], keepalive.hear)
        with stream:
            stream._thread.join(WAIT_S)
        assert proxy.calls["WatchTieringStatuses"] == 1


class ClosedInBetween(TieringClient):
    """A client whose application ends while the server refuses the stream of a table that is not tiered."""

    stream: StatusStream

    def watch_tiering_statuses(self, paths: Sequence[TablePath] = ()) -> Iterator[StatusChanges]:
        self.stream.close()
        self.close()
        raise FlussTieringError(ErrorCode.INVALID_TIERING_STATE, f"{paths[0]} is not tiered")


def test_a_client_that_is_closed_meanwhile_ends_the_stream_without_a_traceback(
    server: ServerThread, keepalive: KeepAlive, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    with ClosedInBetween(server.target) as client:
        client.stream = StatusStream(client, [new_path()], keepalive.hear)
        with client.stream:
            client.stream._thread.join(WAIT_S)
    assert not failed
