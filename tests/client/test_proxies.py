"""A proxy that the environment names: it gets nothing of what is for a server on the same machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_support import ServerThread
from fluss_tiering.client import AsyncTieringClient, TieringClient
from fluss_tiering.client.security import ClientSecurity


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What a proxy gets that the environment names for each protocol."""
    received: list[bytes] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    received.append(connection.recv(4096))

        thread = threading.Thread(target=serve)
        thread.start()
        for name in ("grpc_proxy", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
        for name in ("no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        try:
            yield received
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_token_for_this_machine_does_not_leave_it(tmp_path: Path, proxied: list[bytes], host: str) -> None:
    security = ClientSecurity(token="secret-of-anna")
    with ServerThread(tmp_path / "data") as server:
        target = f"{host}:{server.server.port}"
        with TieringClient(target, security=security) as client:
            assert client.list_tables() == []
        async with AsyncTieringClient(target, security=security) as asynchronous:
            assert await asynchronous.list_tiering_statuses() == []
    assert proxied == []
