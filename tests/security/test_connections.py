"""Connections that send nothing, how many there may be, and the token of a driver, which stays with the driver."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine_support import ServerThread
from fluss_tiering.server.app import raise_descriptor_limit
from fluss_tiering.server.edge import listener
from waiting import WAIT_S


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


def test_a_connection_that_does_not_begin_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_CONNECTION_OPTIONS", (("grpc.server_handshake_timeout_ms", 500),))
    with ServerThread(tmp_path / "data") as running, ExitStack() as opened:
        closed_by_server([silent(running.server.port, opened)], 1)


def test_the_process_may_open_as_many_files_as_the_system_permits() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
