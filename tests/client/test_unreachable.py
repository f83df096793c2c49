"""Servers that do not exist, do not answer, or are not tiering servers, and proxies that the environment names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from refusals import refused

from cases import cases
from engine_support import ServerProcess, ServerThread
from examples.ports import free_ports
from fluss_tiering.client import AsyncTieringClient, TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath, WriteKind
from other_server import OtherServer
from waiting import wait_until

PATH = TablePath("db", "t")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a program that accepts connections and never answers."""
    with OtherServer(None) as other:
        yield other.target


@pytest.fixture
def nobody() -> str:
    """An address on which nothing listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


CALLS: list[Callable[[TieringClient], object]] = [
    TieringClient.list_tables,
    lambda client: list(client.fetch_log(TableBucket(1, 0), 0, 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_an_unreachable_server_is_named_with_what_to_do(nobody: str, call: Callable[[TieringClient], object]) -> None:
    started = time.monotonic()
    with (
        TieringClient(nobody) as client,
        refused(ErrorCode.UNAVAILABLE, f"cannot reach the tiering server at {nobody}", "fluss-tiering serve"),
    ):
        call(client)
    assert time.monotonic() - started < 60


@cases(
    ("targets", "told"),
    [
        (["", "  ", "localhost", "localhost:", ":9133", "9133", "localhost:http", "a b:9133"], "expected HOST:PORT"),
        (["@127.0.0.1:9133", "a b@127.0.0.1:9133", "id@127.0.0.1", "id@", "é@h:1"], ""),  # D30
        (["http://localhost:9133"], "expected HOST:PORT without http://"),
        (["https://localhost:9133"], "expected HOST:PORT without https://; --tls or the variable FLUSS_TIERING_TLS"),
        (["127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:84669"], "expected a port from 1 to 65535"),
    ],
)
@cases("client", [TieringClient, AsyncTieringClient])
def test_an_address_that_no_server_can_have_is_refused(
    client: Callable[[str], object], targets: list[str], told: str
) -> None:
    for target in targets:
        with refused(ErrorCode.INVALID_REQUEST, repr(target), told):
            client(target)


@pytest.mark.slow
async def test_an_unreachable_server_is_named_in_asyncio_too(nobody: str) -> None:
    async with AsyncTieringClient(nobody, timeout=5) as client:
        with pytest.raises(FlussTieringError) as failed:
            await client.list_tiering_statuses()
    assert failed.value.code is ErrorCode.UNAVAILABLE
    assert nobody in failed.value.message


def test_writing_to_an_unreachable_server(nobody: str) -> None:
    import pyarrow as pa  # noqa: PLC0415 - a caller of write_rows has it

    with TieringClient(nobody) as client, refused(ErrorCode.UNAVAILABLE, nobody):
        list(client.write_rows(PATH, WriteKind.APPEND, [pa.table({"id": [1]})]))


@pytest.mark.parametrize("call", CALLS)
def test_a_server_that_never_answers_ends_at_the_deadline(silent: str, call: Callable[[TieringClient], object]) -> None:
    started = time.monotonic()
    with TieringClient(silent, timeout=0.5) as client, refused(ErrorCode.UNAVAILABLE, silent):
        call(client)
    assert time.monotonic() - started < 60


def test_something_else_on_the_port_is_told_apart() -> None:
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        with TieringClient(f"127.0.0.1:{port}") as client, pytest.raises(FlussTieringError) as failed:
            client.list_tables()
    finally:
        other.stop(None)
    assert failed.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert "is not a tiering server, or it is older than this client" in failed.value.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 505 Not Supported\r\n\r\n", b"<!DOCTYPE HTML>\n<html>no version 2.0</html>"]
)
def test_a_port_that_does_not_speak_grpc_is_told_apart(answer: bytes) -> None:
    with (
        OtherServer(answer) as other,
        TieringClient(other.target, label="connection c") as client,
        pytest.raises(FlussTieringError) as failed,
    ):
        client.list_tables()
    assert failed.value.code is ErrorCode.UNAVAILABLE
    assert f"at {other.target} (connection c): something else than a tiering server answers" in failed.value.message
    assert "usually 9133" in failed.value.message
    assert "fluss-tiering serve" not in failed.value.message


@pytest.mark.system
def test_a_server_that_restarts_is_found_again(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path).start()
    with TieringClient(process.target, timeout=60) as client:
        assert client.list_tables() == []
        process.kill()
        starting = threading.Thread(target=process.start)
        starting.start()

        def answers() -> bool:
            try:
                assert client.list_tables() == []
            except FlussTieringError as error:
                assert error.code is ErrorCode.UNAVAILABLE  # noqa: PT017 - until it is up
                return False
            return True

        wait_until(answers)
        starting.join()
    process.stop()


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What a proxy gets that the environment names for each protocol."""
    with OtherServer(b"") as proxy:
        for name in ("grpc_proxy", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://{proxy.target}")
        for name in ("no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield proxy.received


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
