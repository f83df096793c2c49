"""Streams of the server that end or stay silent, and rows that are acknowledged request by request."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pyarrow as pa
import pytest
from refusals import refused

from engine_support import SCHEMA, ServerThread, log_end, new_table
from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.client import AsyncTieringClient, TieringClient, channel, streams
from fluss_tiering.model.column_changes import AddColumn, RenameColumn
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TablePath, WriteKind
from fluss_tiering.server.edge.methods import METHODS
from fluss_tiering.wire.tables import path_to_pb

WAIT_S = 120
"""Only a test that fails waits so long."""

READ_BY: dict[str, Callable[[TieringClient], Iterator[object]]] = {
    "WatchTieringStatuses": lambda client: client.watch_tiering_statuses(),
    "FetchLog": lambda client: client.fetch_log(TableBucket(1, 0), 0, 1),
    "FetchKvSnapshot": lambda client: client.fetch_kv_snapshot(TableBucket(1, 0), 1, None, None),
}


def test_no_stream_is_repeated_by_grpc() -> None:
    options = dict(channel.RETRY_OPTIONS)
    config = json.loads(str(options["grpc.service_config"]))
    without, repeated = config["methodConfig"]
    assert "retryPolicy" not in without
    assert repeated["name"] == [{}]
    names = {f"/{each['service']}/{each['method']}" for each in without["name"]}
    assert names <= METHODS.keys()
    received = {name for name, method in METHODS.items() if method.server_streaming}
    assert received <= names
    assert {name.rpartition("/")[2] for name in received if not METHODS[name].client_streaming} == READ_BY.keys()


@contextmanager
def going_away(method: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Run a server that takes a stream, and yield its address and what makes it refuse the stream and end."""
    seen, go = threading.Event(), threading.Event()

    def answer(_request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        seen.set()
        go.wait(WAIT_S)
        context.abort(grpc.StatusCode.UNAVAILABLE, "no longer the active server")
        yield b""

    _, service, name = method.split("/")
    server = grpc.server(ThreadPoolExecutor(8))
    handlers = {name: grpc.unary_stream_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def end() -> None:
        assert seen.wait(WAIT_S)
        go.set()
        # Whoever tries again finds nobody.
        server.stop(0).wait(WAIT_S)

    try:
        yield f"127.0.0.1:{port}", end
    finally:
        go.set()
        server.stop(0)


def method_named(name: str) -> str:
    (method,) = (each for each in METHODS if each.endswith(f"/{name}"))
    return method


@pytest.mark.parametrize("name", READ_BY)
def test_a_reader_hears_that_the_server_refused_its_stream_and_ended(name: str) -> None:
    failed: list[FlussTieringError] = []

    def read() -> None:
        try:
            with TieringClient(address, timeout=2 * WAIT_S) as client:
                next(READ_BY[name](client))
        except FlussTieringError as error:
            failed.append(error)

    with going_away(method_named(name)) as (address, end):
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        end()
        reader.join(WAIT_S)
    (error,) = failed
    # A server that ends may cancel the call before its refusal is sent.
    assert error.code is ErrorCode.UNAVAILABLE


async def test_an_asyncio_reader_hears_it_too() -> None:
    with going_away(method_named("WatchTieringStatuses")) as (address, end):
        async with AsyncTieringClient(address, timeout=2 * WAIT_S) as client:
            first = asyncio.ensure_future(anext(client.watch_tiering_statuses([TablePath("db", "t")])))
            await asyncio.to_thread(end)
            with pytest.raises(FlussTieringError) as failed:
                await asyncio.wait_for(first, WAIT_S)
    assert failed.value.code is ErrorCode.UNAVAILABLE


class Silent:
    """A call of gRPC that nothing ends, not even its cancellation."""

    def __init__(self) -> None:
        self.cancelled = 0
        self._never = threading.Event()

    def __next__(self) -> Any:
        self._never.wait()

    def cancel(self) -> bool:
        self.cancelled += 1
        return True


def test_a_stream_that_grpc_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_CANCELLATION_S", 0.1)
    call = Silent()
    with pytest.raises(FlussTieringError, match=r"sent nothing for 0\.1 s") as failed:
        next(streams.messages(call, 0.1))
    assert failed.value.code is ErrorCode.UNAVAILABLE
    assert call.cancelled


def rows(count: int, *, start: int = 0, width: int = 4) -> pa.Table:
    return pa.table({"id": range(start, start + count), "name": ["x" * width] * count}, schema=SCHEMA)


def test_tables_and_batches_are_acknowledged_in_requests(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)
    batches = [rows(10), rows(5).to_batches()[0], rows(0), rows(20_000, width=1000)]
    acknowledged = list(client.write_rows(table.path, WriteKind.APPEND, batches))
    assert acknowledged[:2] == [10, 5]
    assert len(acknowledged) > 6, "20 MB go in requests of about 4 MiB"
    assert sum(acknowledged) == log_end(client, table.path) == 20_015


def test_rows_that_are_much_larger_than_others_go_in_requests_of_their_own(client: TieringClient) -> None:
    """Two rows of 8 MB each would be too large for one request, although the average row is small."""
    table = new_table(client, primary_key=False)
    large = pa.table({"id": [10, 11, 12], "name": ["x" * (8 << 20)] * 3}, schema=SCHEMA)
    batch = pa.concat_tables([rows(10), large, rows(30, start=13)]).combine_chunks()
    acknowledged = list(client.write_rows(table.path, WriteKind.APPEND, [batch]))
    assert len(acknowledged) >= 3
    assert sum(acknowledged) == log_end(client, table.path) == 43


def test_nothing_to_write_is_nothing(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)
    assert list(client.write_rows(table.path, WriteKind.APPEND, [])) == []
    assert log_end(client, table.path) == 0


def test_the_callers_own_error_reaches_the_caller(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)

    def broken() -> Iterator[pa.Table]:
        yield rows(10)
        raise LookupError("the file ended")

    with pytest.raises(LookupError, match="the file ended"):
        list(client.write_rows(table.path, WriteKind.APPEND, broken()))
    assert list(client.write_rows(table.path, WriteKind.APPEND, [rows(1)])) == [1]


def test_a_caller_may_stop_listening(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)
    acknowledged = client.write_rows(table.path, WriteKind.APPEND, (rows(10) for _ in range(100)))
    assert next(acknowledged) == 10
    acknowledged.close()
    assert list(client.write_rows(table.path, WriteKind.APPEND, [rows(1)])) == [1]


def test_rows_before_a_refused_request_are_written(client: TieringClient) -> None:
    table = new_table(client, primary_key=False)
    acknowledged = []
    wrong = pa.table({"id": ["text"], "name": ["a"]})
    with refused(ErrorCode.INVALID_ROWS):
        acknowledged.extend(client.write_rows(table.path, WriteKind.APPEND, [rows(10), wrong, rows(10)]))
    assert log_end(client, table.path) == 10


def test_a_name_that_goes_to_another_column_ends_the_call(client: TieringClient) -> None:
    table = new_table(client)
    requests: queue.SimpleQueue[tables_pb2.WriteRowsRequest | None] = queue.SimpleQueue()
    call = client._stubs.tables.WriteRows(iter(requests.get, None))
    path, kind = path_to_pb(table.path), tables_pb2.PB_WRITE_KIND_UPSERT
    more, old = AddColumn(Column("more", DataType.parse("INT"))), RenameColumn("name", "old")
    for number, changes in enumerate([[more], [old, AddColumn(Column("name", DataType.parse("STRING")))], []]):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_table(rows(1, start=number))
        requests.put(tables_pb2.WriteRowsRequest(table_path=path, kind=kind, arrow_ipc=sink.getvalue().to_pybytes()))
        if changes:
            assert next(call).row_count == 1
            client.alter_table(table.path, column_changes=changes)
    with pytest.raises(grpc.RpcError, match="and 'name' is not the column any more that it was"):
        next(call)
    with client.scan(table.path) as scan:
        written = pa.Table.from_batches(scan, scan.schema).select(["id", "name", "old"]).to_pylist()
    assert written == [{"id": number, "name": None, "old": "xxxx"} for number in range(2)]


@pytest.mark.slow
def test_a_message_over_the_limit_says_so(tmp_path) -> None:
    with (
        ServerThread(tmp_path / "data", max_message_bytes=1 << 20) as running,
        TieringClient(running.target) as client,
    ):
        table = new_table(client, primary_key=False)
        with refused(ErrorCode.INVALID_REQUEST, "larger than max", "a single row must fit into a message"):
            list(client.write_rows(table.path, WriteKind.APPEND, [rows(1, width=2 << 20)]))
        assert log_end(client, table.path) == 0
