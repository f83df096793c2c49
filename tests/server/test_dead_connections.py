"""Connections whose other end is lost without a message, like those of a host that lost its power or its network."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine_support import SCHEMA, ServerThread, descriptor, new_path
from fluss_tiering.client import TieringClient
from fluss_tiering.client.aio import AsyncTieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import WriteKind
from fluss_tiering.server.edge import listener
from metrics_support import watchers_of
from tcp_proxy import TcpProxy
from waiting import wait_until

SHORT = {"grpc.keepalive_time_ms": 500, "grpc.http2.ping_timeout_ms": 2500}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    """A server that soon checks whether a connection is alive."""
    options = dict(listener.KEEPALIVE_OPTIONS)
    assert SHORT.keys() <= options.keys()
    options |= SHORT
    monkeypatch.setattr(listener, "KEEPALIVE_OPTIONS", tuple(options.items()))
    with ServerThread(tmp_path / "data") as running:
        yield running


@pytest.fixture
def network(server: ServerThread) -> Iterator[TcpProxy]:
    with TcpProxy(server.server.port) as made:
        yield made


@pytest.mark.slow
def test_a_watcher_whose_host_vanished_is_let_go(server: ServerThread, network: TcpProxy) -> None:
    with TieringClient(f"127.0.0.1:{network.port}") as client:
        changes = client.watch_tiering_statuses()
        next(changes)
        assert watchers_of(server.server.metrics_port) == 1
        network.cut()
        wait_until(lambda: watchers_of(server.server.metrics_port) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
@pytest.mark.sampled(1)
def test_a_client_replaces_a_connection_that_carries_nothing_any_more(network: TcpProxy, kind: str) -> None:  # D7
    target = f"127.0.0.1:{network.port}"
    answers = asked_again_and_again if kind == "blocking" else lambda *args: asyncio.run(asked_by_asyncio(*args))
    assert answers(target, network) < 15, "as many calls failed before"
    assert network.accepted == 2


def asked_again_and_again(target: str, network: TcpProxy) -> int:
    """Return how many calls of 3 s fail after the connection was lost."""
    with TieringClient(target, timeout=3) as client:
        client.list_tiering_rounds()
        network.lose_connections()
        for failures in itertools.count():
            assert failures < 40
            try:
                client.list_tiering_rounds()
            except FlussTieringError:
                continue
            return failures
    raise AssertionError


async def asked_by_asyncio(target: str, network: TcpProxy) -> int:
    async with AsyncTieringClient(target, timeout=3) as client:
        await client.list_tiering_rounds()
        network.lose_connections()
        for failures in itertools.count():
            assert failures < 40
            try:
                await client.list_tiering_rounds()
            except FlussTieringError:
                continue
            return failures
    raise AssertionError


@pytest.mark.long
def test_an_idle_connection_is_looked_after_with_the_servers_permission(network: TcpProxy) -> None:  # D7
    with TieringClient(f"127.0.0.1:{network.port}", timeout=60) as client:
        client.list_tiering_rounds()
        # Longer than three pings, which a server that does not permit them answers by ending the connection.
        time.sleep(35)
        client.list_tiering_rounds()
        assert network.accepted == 1


@pytest.mark.slow
def test_who_reads_slowly_stays(server: ServerThread, network: TcpProxy) -> None:
    noise = [os.urandom(100).hex() for _ in range(50_000)]
    batch = pa.table({"id": range(50_000), "name": noise}, schema=SCHEMA)
    with TieringClient(f"127.0.0.1:{network.port}") as client:
        table = client.create_table(new_path(), descriptor(primary_key=False))
        sum(client.write_rows(table.path, WriteKind.APPEND, [batch] * 2))
        (bucket,) = client.list_buckets([table.path])[table.path]
        changes = client.watch_tiering_statuses()
        next(changes)
        chunks = client.fetch_log(bucket.bucket, 0, 100_000)
        read = len(next(chunks))
        # Twice as long as a connection that does not answer is kept.
        time.sleep(6)
        assert watchers_of(server.server.metrics_port) == 1
        assert read + sum(map(len, chunks)) > 10_000_000
        client.drop_table(table.path, drop_untiered=True)
        # What the server finds out about the table's backlog may come first.
        assert (table.path,) in (each.removed for each in changes)
