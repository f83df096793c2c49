"""Connections of which there are too many, or that send nothing."""

from __future__ import annotations

import contextlib
import resource
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.server.metrics import exporter
from fluss_tiering.server.rpc import listener
from fluss_tiering.server.rpc.limits import connections
from fluss_tiering.server.rpc.limits.connections import ConnectionWatch, accepted_on, raise_descriptor_limit

WAIT_S = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    with ServerThread(tmp_path / "data", max_connections=20) as running:
        yield running


def silent(port: int, opened: ExitStack, source: str = "127.0.0.1") -> socket.socket:
    """Open a connection that sends nothing."""
    return opened.enter_context(socket.create_connection(("127.0.0.1", port), WAIT_S, (source, 0)))


def closed_by_server(sockets: list[socket.socket], count: int) -> None:
    """Wait until the server has closed so many of some connections."""
    for each in sockets:
        each.settimeout(0.05)
    left, closed = list(sockets), 0
    for _ in range(10_000):
        for each in list(left):
            try:
                received = each.recv(1 << 10)
            except TimeoutError:
                continue
            except ConnectionError:
                received = b""
            if not received:
                left.remove(each)
                closed += 1
            if closed >= count:
                return
    raise AssertionError(f"{closed} connections were closed: expected {count}")


def was_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection, as far as it is known at once."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 10):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_silent_connections_of_one_address_are_closed_and_no_others(server: ServerThread) -> None:
    with ExitStack() as opened, TieringClient(server.target) as client:
        table = new_table(client)
        other = silent(server.server.port, opened, "127.0.0.2")
        closed_by_server([silent(server.server.port, opened) for _ in range(30)], 20)
        assert client.list_tables()[0].path == table.path
        assert not was_closed(other)


def test_there_are_so_many_connections_in_all(server: ServerThread) -> None:
    with ExitStack() as opened:
        port = server.server.port
        closed_by_server([silent(port, opened, f"127.0.0.{address}") for address in range(2, 32)], 10)
        with TieringClient(server.target) as client:
            assert client.list_tables() == []


def test_a_connection_that_does_not_begin_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_CONNECTION_OPTIONS", (("grpc.server_handshake_timeout_ms", 500),))
    with ServerThread(tmp_path / "data") as running, ExitStack() as opened:
        closed_by_server([silent(running.server.port, opened)], 1)


def test_connections_are_found_when_no_file_can_be_opened_any_more() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0)) as accepting, ExitStack() as opened:
        port = accepting.getsockname()[1]
        clients = [silent(port, opened) for _ in range(4)]
        for _ in clients:
            opened.enter_context(accepting.accept()[0])
        watch = ConnectionWatch(port, 2)
        # Not the number of open files: their own numbers may be greater, where files of before are closed by now.
        most = 1 + max(int(file.name) for file in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    opened.enter_context(socket.socket())
            closed = watch.look()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert closed == 3
        assert [was_closed(client) for client in clients].count(True) == 3


def test_no_more_connections_than_files_may_be_opened() -> None:
    for soft, most, expected in ((100, 1000, 50), (resource.RLIM_INFINITY, 1000, 1000), (5000, 1000, 1000)):
        with mock.patch.object(resource, "getrlimit", return_value=(soft, soft)):
            watch = ConnectionWatch(1, most)
        assert (watch._most, watch._of_one) == (expected, expected // 2)


def test_a_connection_that_sent_more_is_closed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_LOOK_S", 3600)
    with socket.create_server(("127.0.0.1", 0)) as accepting, ExitStack() as opened:
        port = accepting.getsockname()[1]
        clients = []
        for number in range(4):
            client, served = silent(port, opened), opened.enter_context(accepting.accept()[0])
            client.sendall(b"x" * (10 - number))
            assert served.recv(100)
            clients.append(client)
        assert len(list(accepted_on(port))) == 4
        assert ConnectionWatch(port, 4).look() == 2
        assert [was_closed(client) for client in clients] == [False, False, True, True]


def test_the_process_may_open_as_many_files_as_the_system_permits() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_silent_scrapes_do_not_keep_out_others(server: ServerThread) -> None:
    port = server.server.metrics_port
    with ExitStack() as opened:
        sockets = [silent(port, opened) for _ in range(50)]
        closed_by_server(sockets, 50 - exporter._CONNECTIONS_OF_ONE)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S) as answer:
            assert b"fluss_tiering_rpc_in_flight" in answer.read()


def test_a_scrape_that_sends_a_byte_now_and_then_ends(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_CLIENT_S", 0.5)
    with ExitStack() as opened:
        connection = silent(server.server.metrics_port, opened)
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000_000):
                connection.sendall(b"x" * 10)
        closed_by_server([connection], 1)
