"""Connections to servers that are no Fluss servers or behave badly: the errors, and that they come in limited time."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from fluss_peers import Line, peer
from refusals import refused

from examples.ports import free_ports
from fluss_tiering.api.fluss.v1.connection_pb2 import AuthenticateRequest, AuthenticateResponse
from fluss_tiering.api.fluss.v1.kv_snapshots_pb2 import GetKvSnapshotMetadataResponse
from fluss_tiering.api.fluss.v1.tables_pb2 import (
    ListDatabasesResponse,
    ListTablesRequest,
    ListTablesResponse,
    MetadataResponse,
    PbServerNode,
)
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, ServerAddress, ServerKind
from fluss_tiering.storage.fluss.rpc.calls.kv import KvSnapshotFiles, kv_snapshot_files
from fluss_tiering.storage.fluss.rpc.client import AsyncFlussClient, FlussClient
from fluss_tiering.storage.fluss.rpc.connection import FlussConnection
from fluss_tiering.storage.fluss.rpc.connection_steps import Credentials
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError, FlussError, FlussServerError

SERVED = (ApiKey.LIST_TABLES, ApiKey.LIST_DATABASES, ApiKey.GET_METADATA)


def tables_of(database: str, *, repeatable: bool = True) -> Call:
    return Call(
        ApiKey.LIST_TABLES,
        ListTablesRequest(database_name=database),
        ListTablesResponse,
        lambda response: list(response.table_name),
        ServerKind.ANY,
        repeatable=repeatable,
    )


def test_nobody_listens() -> None:
    (port,) = free_ports(1)
    with refused(ErrorCode.UNAVAILABLE, f"cannot reach the Fluss server at 127.0.0.1:{port}"):
        FlussConnection(ServerAddress("127.0.0.1", port))
    with refused(ErrorCode.UNAVAILABLE, "cannot reach the Fluss server at no-such-host.invalid:9123"):
        FlussConnection(ServerAddress("no-such-host.invalid", 9123))


def test_a_server_that_says_nothing() -> None:
    with peer(lambda line: line.wait_for_end()) as address:
        began = time.monotonic()
        with refused(ErrorCode.UNAVAILABLE, str(address), "silence for 0.3 s", "did not answer as a Fluss server does"):
            FlussConnection(address, timeout=0.3)
        assert time.monotonic() - began < 20


def test_what_a_web_server_says_is_no_frame() -> None:
    def script(line: Line) -> None:
        line.request()
        line.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        line.wait_for_end()

    with peer(script) as address, refused(ErrorCode.CORRUPT_DATA, str(address), "b'HTTP'", "bind.listeners"):
        FlussConnection(address)


def test_a_server_that_hangs_up_at_once() -> None:
    with peer(lambda line: line.request()) as address, refused(ErrorCode.UNAVAILABLE, str(address), "hung up"):
        FlussConnection(address)


def test_answers_in_another_order_find_who_waits() -> None:
    def script(line: Line) -> None:
        line.greet(*SERVED)
        asked = {}
        for _ in range(3):
            api, version, request_id, message = line.request()
            assert (api, version) == (ApiKey.LIST_TABLES, 0)
            asked[ListTablesRequest.FromString(message).database_name] = request_id
        line.answer(4711, ListTablesResponse(table_name=["nobody asked"]))
        for name in ("c", "a"):
            line.answer(asked[name], ListTablesResponse(table_name=[f"{name}-1"]))
        line.error(asked["b"], 4, "no such database")
        line.wait_for_end()

    with peer(script) as address, ThreadPoolExecutor(3) as pool:
        connection = FlussConnection(address)
        answers = {name: pool.submit(connection.call, tables_of(name), 5) for name in "abc"}
        wait(answers.values(), 10)
        assert answers["a"].result() == ["a-1"]
        assert answers["c"].result() == ["c-1"]
        with pytest.raises(FlussServerError) as caught:
            answers["b"].result()
        assert caught.value.fluss_error is FlussError.DATABASE_NOT_EXIST
        assert caught.value.code is ErrorCode.DATABASE_NOT_EXIST
        connection.close()


def test_what_a_server_does_not_serve_is_not_sent() -> None:
    sent = []

    def script(line: Line) -> None:
        line.greet(ApiKey.GET_METADATA)
        sent.append(line.wait_for_end())

    with peer(script) as address:
        connection = FlussConnection(address)
        with refused(ErrorCode.UNSUPPORTED_VERSION, "LIST_TABLES (1008)", str(address)):
            connection.call(tables_of("db"), 5)
        connection.close()
    assert sent == [b""]


@pytest.mark.parametrize(("highest", "sent"), [(0, 0), (1, 1), (2, 1)])
def test_a_server_is_told_the_version_that_both_sides_know(highest: int, sent: int) -> None:
    def script(line: Line) -> None:
        line.greet(highest={ApiKey.GET_KV_SNAPSHOT_METADATA: highest})
        api, version, request_id, _ = line.request()
        assert (api, version) == (ApiKey.GET_KV_SNAPSHOT_METADATA, sent)
        line.answer(request_id, GetKvSnapshotMetadataResponse(log_offset=7))
        line.wait_for_end()

    with peer(script) as address:
        connection = FlussConnection(address)
        assert connection.call(kv_snapshot_files(TableBucket(1, 0), 5), 5) == KvSnapshotFiles(7, {})
        connection.close()


def test_a_late_answer_ends_the_connection_for_all() -> None:
    def script(line: Line) -> None:
        line.greet(*SERVED)
        line.wait_for_end()

    with peer(script) as address, ThreadPoolExecutor(1) as pool:
        connection = FlussConnection(address)
        patient = pool.submit(connection.call, tables_of("patient"), 20)
        with pytest.raises(FlussConnectionError, match=r"did not answer LIST_TABLES within 0.2 s") as caught:
            connection.call(tables_of("hasty"), 0.2)
        assert caught.value.outcome_unknown
        with pytest.raises(FlussConnectionError):
            patient.result(5)
        assert not connection.usable
        with pytest.raises(FlussConnectionError) as caught:
            connection.call(tables_of("later"), 5)
        assert not caught.value.outcome_unknown


@pytest.mark.parametrize("cut", [2, 7, 20])
def test_a_connection_that_breaks_within_an_answer(cut: int) -> None:
    def script(line: Line) -> None:
        line.greet(*SERVED)
        line.request()
        line.socket.sendall((b"\x00\x00\x00\x64\x00\x00\x00\x00\x01" + bytes(50))[:cut])

    with peer(script) as address:
        connection = FlussConnection(address)
        with pytest.raises(FlussConnectionError, match="hung up") as caught:
            connection.call(tables_of("db"), 5)
        assert caught.value.outcome_unknown


def test_a_failure_of_the_connection_reaches_all_who_wait() -> None:
    def script(line: Line) -> None:
        line.greet(*SERVED)
        line.request()
        line.fail(3, "frame too large")
        line.wait_for_end()

    with peer(script) as address:
        connection = FlussConnection(address)
        with pytest.raises(FlussConnectionError, match="CORRUPT_MESSAGE: frame too large"):
            connection.call(tables_of("db"), 5)


def test_an_answer_that_is_no_such_message() -> None:
    def script(line: Line) -> None:
        line.greet(*SERVED)
        _, _, request_id, _ = line.request()
        line.socket.sendall(b"\x00\x00\x00\x08\x00" + request_id.to_bytes(4, "big") + b"\xff\xff\xff")
        line.wait_for_end()

    with peer(script) as address:
        connection = FlussConnection(address)
        with refused(ErrorCode.CORRUPT_DATA, "LIST_TABLES"):
            connection.call(tables_of("db"), 5)
        connection.close()


def test_a_large_answer_comes_whole() -> None:
    names = [f"{number:0100d}" for number in range(200_000)]

    def script(line: Line) -> None:
        line.greet(*SERVED)
        line.answer(line.request()[2], ListTablesResponse(table_name=names))
        line.wait_for_end()

    with peer(script) as address:
        connection = FlussConnection(address)
        assert connection.call(tables_of("db"), 20) == names
        connection.close()


def test_credentials_are_sent_before_anything_else() -> None:
    def script(line: Line) -> None:
        line.greet(*SERVED, ApiKey.AUTHENTICATE)
        api, _, request_id, message = line.request()
        assert api == ApiKey.AUTHENTICATE
        assert AuthenticateRequest.FromString(message) == AuthenticateRequest(protocol="PLAIN", token=b"\0user\0word")
        line.answer(request_id, AuthenticateResponse(challenge=b""))
        line.answer(line.request()[2], ListTablesResponse())
        line.wait_for_end()

    with peer(script) as address:
        connection = FlussConnection(address, credentials=Credentials("user", "word"))
        assert connection.call(tables_of("db"), 5) == []
        connection.close()


def me(line: Line) -> MetadataResponse:
    host, port = line.socket.getsockname()
    node = PbServerNode(node_id=0, host=host, port=port)
    return MetadataResponse(coordinator_server=node, tablet_servers=[node])


@pytest.mark.parametrize(("repeatable", "sent"), [(True, 2), (False, 1)])
def test_a_call_that_may_be_done_is_repeated_only_where_that_is_as_good(repeatable: bool, sent: int) -> None:
    asked = []

    def script(line: Line) -> None:
        line.greet(*SERVED)
        while True:
            api, _, request_id, _ = line.request()
            if api == ApiKey.GET_METADATA:
                line.answer(request_id, me(line))
            else:
                asked.append(api)
                if len(asked) == 1:
                    line.socket.shutdown(socket.SHUT_RDWR)
                    return
                line.answer(request_id, ListTablesResponse(table_name=["t"]))

    with peer(script) as address, FlussClient(str(address)) as client:
        if repeatable:
            assert client.call(tables_of("db")) == ["t"]
        else:
            with pytest.raises(FlussConnectionError, match="hung up"):
                client.call(tables_of("db", repeatable=False))
    assert len(asked) == sent


def test_a_client_goes_on_with_the_next_server_where_one_is_gone() -> None:
    def script(line: Line) -> None:
        line.greet(*SERVED)
        while True:
            api, _, request_id, _ = line.request()
            line.answer(request_id, me(line) if api == ApiKey.GET_METADATA else ListDatabasesResponse())

    (gone,) = free_ports(1)
    with peer(script) as address, FlussClient(f"127.0.0.1:{gone},{address}") as client:
        assert client.call(tables_of("db")) == []


@pytest.mark.slow
def test_a_client_gives_up_in_time() -> None:
    (gone,) = free_ports(1)
    began = time.monotonic()
    with (
        FlussClient(f"127.0.0.1:{gone}", timeout=0.5) as client,
        refused(ErrorCode.UNAVAILABLE, f"127.0.0.1:{gone}"),
    ):
        client.call(tables_of("db"))
    assert 0.4 < time.monotonic() - began < 20


async def test_a_client_of_an_event_loop_that_is_closed_ends_its_calls() -> None:
    asked = threading.Event()

    def script(line: Line) -> None:
        line.greet(*SERVED)
        line.request()
        asked.set()
        line.wait_for_end()

    with peer(script) as address:
        client = AsyncFlussClient(str(address), timeout=300)
        calls = [asyncio.create_task(client.call(tables_of("db"))) for _ in range(3)]
        assert await asyncio.to_thread(asked.wait, 20)
        await client.close()
        for call in calls:
            with pytest.raises(FlussConnectionError):
                await call
