"""Servers that PostgreSQL is cut off from: the leader steps down in time, and the other server takes over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_support import ServerProcess, new_table, put
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from metrics_support import scrape, value
from needs import needs
from postgres_support import socket_of, through
from tcp_proxy import TcpProxy
from waiting import wait_until

LEASE = {"FLUSS_TIERING_LEADER_LEASE": "4s"}
ACTIVE = "fluss_coordinator_activeCoordinatorCount"


@dataclass
class Pair:
    """Two servers on one data folder, each with a network to PostgreSQL of its own."""

    first: ServerProcess
    second: ServerProcess
    first_network: TcpProxy
    second_network: TcpProxy


@pytest.fixture
@needs("system")
def pair(tmp_path: Path, postgres_url: str) -> Iterator[Pair]:
    with ExitStack() as stack:
        networks = [stack.enter_context(TcpProxy(socket_of(postgres_url))) for _ in range(2)]
        servers = []
        for name, network in zip(("first", "second"), networks, strict=True):
            environment = {"FLUSS_TIERING_STORE_URL": through(network.port, postgres_url), **LEASE}
            server = ServerProcess(tmp_path / name, data_dir=tmp_path / "data", **environment)
            servers.append(server.start())
            stack.callback(server.kill)
        yield Pair(*servers, *networks)


def active_count(server: ServerProcess) -> float:
    return value(scrape(server.metrics_port), ACTIVE)


def is_active(client: TieringClient) -> bool:
    try:
        client.list_tables()
    except FlussTieringError as error:
        if error.code in {ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER}:
            return False
        raise
    return True


def reaches_database(server: ServerProcess) -> bool:
    return bool(value(scrape(server.metrics_port), "fluss_tiering_database_reachable"))


def test_a_leader_that_alone_is_cut_off_makes_way(pair: Pair) -> None:  # D1
    with TieringClient(pair.first.target, timeout=5) as old, TieringClient(pair.second.target, timeout=5) as new:
        table = new_table(old, [1])
        (claim,) = old.claim_tables([table.path], "X", None, "driver")
        assert isinstance(claim, Claim)
        ended: list[FlussTieringError] = []
        watching = threading.Event()

        def watch() -> None:
            try:
                for _ in old.watch_tiering_statuses():
                    watching.set()
            except FlussTieringError as error:
                ended.append(error)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        assert watching.wait(60)
        assert (active_count(pair.first), active_count(pair.second)) == (1, 0)

        pair.first_network.cut()
        # A write waits for an answer that does not come, as a commit does whose answer is lost.
        threading.Thread(target=write_late, args=(old,), daemon=True).start()
        wait_until(lambda: active_count(pair.second) == 1)
        assert active_count(pair.first) == 0
        wait_until(lambda: is_active(new))
        watcher.join(60)
        assert [error.code for error in ended] == [ErrorCode.UNAVAILABLE]
        assert pair.first.process is not None
        assert pair.first.process.poll() is None, "it waits for the database, without a restart"

        answer = new.heartbeat(tiering=[HeartbeatEntry(claim.table_id, claim.tiering_epoch)])
        assert answer.tiering_errors == {}, "the round goes on"
        put(new, table, {2: "two"})
        pair.first_network.mend()
        wait_until(lambda: reaches_database(pair.first))
        assert (active_count(pair.first), active_count(pair.second)) == (0, 1)
        assert new.list_buckets([table.path])[table.path][0].log_end_offset == 2


def write_late(client: TieringClient) -> None:
    with suppress(FlussTieringError):
        client.acquire_lease("late", 3_600_000, {}, allow_empty=True)
