"""Clients that hold their requests back, or take no answers, keep nobody from the server for long."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pyarrow as pa
import pytest
from callers import call
from raw_http2 import WAIT_S, RawClient, message

from engine_support import SCHEMA, ServerThread, new_table
from fluss_tiering.api.v1 import common_pb2, tables_pb2
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, ThrottledError
from fluss_tiering.model.table import WriteKind
from fluss_tiering.server.rpc.limits import reading
from fluss_tiering.server.rpc.limits.answers import UntakenAnswers
from fluss_tiering.server.rpc.limits.connections import close_connection
from fluss_tiering.server.security.identity import Identity
from fluss_tiering.server.security.rates import WORK_BURST_BYTES, WORK_BYTES_PER_S, CallRates
from fluss_tiering.server.security.roles import Grant
from fluss_tiering.server.security.tokens import StaticToken, TokenFile
from fluss_tiering.wire.tables import kind_to_pb, path_to_pb
from waiting import wait_until

LIST = "/fluss_tiering.v1.Tables/ListTables"
GET = "/fluss_tiering.v1.Tables/GetTables"
FETCH = "/fluss_tiering.v1.Tables/FetchLog"
WRITE = "/fluss_tiering.v1.Tables/WriteRows"
WATCH = "/fluss_tiering.v1.LakeTiering/WatchTieringStatuses"
HEARTBEAT = "/fluss_tiering.v1.LakeTiering/LakeTieringHeartbeat"


@dataclass
class Guarded:
    """A server with tokens, and a table with 4 MiB of rows."""

    running: ServerThread
    file: TokenFile
    tokens: dict[str, str]
    fetch: bytes
    get: bytes
    write: bytes

    @property
    def target(self) -> str:
        return self.running.target

    def revoke(self, role: str) -> None:
        """Revoke the token of a role."""
        self.file.remove(self.tokens[role].split("_")[1])


@contextlib.contextmanager
def guarded(folder: Path, **settings: Any) -> Iterator[Guarded]:
    file, tokens = TokenFile(folder / "tokens.json"), {}
    for role in ("reader", "writer", "tierer", "admin"):
        token, tokens[role] = StaticToken.create(role, [Grant.parse(role)], datetime.now(UTC), None)
        file.add(token)
    with ServerThread(folder / "data", tokens_file=file.path, **settings) as running:
        with TieringClient(running.target, security=ClientSecurity(token=tokens["admin"])) as client:
            table = new_table(client, primary_key=False)
            rows = pa.table({"id": list(range(400)), "name": [f"{number:010240d}" for number in range(400)]}, SCHEMA)
            assert sum(client.write_rows(table.path, WriteKind.APPEND, [rows])) == 400
        bucket = common_pb2.PbTableBucket(table_id=table.table_id, bucket_id=0)
        fetch = tables_pb2.FetchLogRequest(bucket=bucket, start_offset=0, end_offset=400)
        get = tables_pb2.GetTablesRequest(table_paths=[path_to_pb(table.path)])
        write = tables_pb2.WriteRowsRequest(table_path=path_to_pb(table.path), kind=kind_to_pb(WriteKind.APPEND))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_table(rows.slice(0, 1))
        write.arrow_ipc = sink.getvalue().to_pybytes()
        yield Guarded(running, file, tokens, *(each.SerializeToString() for each in (fetch, get, write)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("token", [None, "flt_0123456789ab_wrong", "flx_wrong"])
@pytest.mark.parametrize("method", [LIST, FETCH, WRITE])
@pytest.mark.sampled(4)
def test_nobody_is_refused_before_the_request_has_come(server: Guarded, token: str | None, method: str) -> None:
    with RawClient(server.target) as client:
        unfinished = struct.pack(">BI", 0, 1 << 20) + b"\0" * 1000
        assert client.ends(client.call(method, token, unfinished, finished=False))


def test_a_request_that_does_not_come_ends_its_call(server: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_DEADLINE_S", 1.0)
    unfinished = struct.pack(">BI", 0, 1 << 20) + b"\0" * 1000
    with RawClient(server.target) as client:
        assert client.ends(client.call(LIST, server.tokens["reader"], unfinished, finished=False))
    with grpc.insecure_channel(server.target) as channel:
        assert call(channel, LIST, server.tokens["reader"])[0] is grpc.StatusCode.OK


def test_one_caller_has_few_slow_requests(server: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_SLOW_OF_ONE", 1)
    unfinished = struct.pack(">BI", 0, 1 << 20) + b"\0" * 1000
    with RawClient(server.target) as client:
        _, second = [client.call(LIST, server.tokens["reader"], unfinished, finished=False) for _ in range(2)]
        assert client.ends(second)
        assert client.ends(client.call(LIST, server.tokens["admin"], message(b""), finished=True)), "the first goes on"


def test_a_connection_whose_client_takes_no_answers_is_closed(tmp_path: Path) -> None:
    with guarded(tmp_path, answer_timeout="1s") as server:
        for method, request in ((FETCH, server.fetch), (GET, server.get)):
            with RawClient(server.target, window=0) as client:
                client.call(method, server.tokens["reader"], message(request), finished=True)
                assert client.is_closed()
        with grpc.insecure_channel(server.target) as channel:
            assert call(channel, LIST, server.tokens["reader"])[0] is grpc.StatusCode.OK


def test_a_revoked_caller_who_takes_no_answers_loses_the_connection(server: Guarded) -> None:
    with RawClient(server.target, window=0) as client:
        stream = client.call(FETCH, server.tokens["reader"], message(server.fetch), finished=True)
        assert client.begins(stream)
        server.revoke("reader")
        assert client.is_closed()


def test_an_idle_stream_of_a_revoked_caller_ends(server: Guarded) -> None:
    requests: SimpleQueue[bytes | None] = SimpleQueue()
    requests.put(server.write)
    with grpc.insecure_channel(server.target) as channel:
        stream: Any = channel.stream_stream(WRITE)
        metadata = [("authorization", f"Bearer {server.tokens['writer']}")]
        writing = stream(iter(requests.get, None), metadata=metadata, timeout=WAIT_S)
        assert next(writing)
        server.revoke("writer")
        with pytest.raises(grpc.RpcError) as refused:
            next(writing)
        requests.put(None)
    failed: Any = refused.value
    assert failed.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "revoked" in failed.details()


def test_a_caller_who_stopped_taking_answers_waits_before_more_are_read(tmp_path: Path) -> None:
    with guarded(tmp_path, max_untaken_bytes_per_identity=4 << 20, answer_timeout="1s") as server:
        with RawClient(server.target, window=0) as client:
            client.call(FETCH, server.tokens["reader"], message(server.fetch), finished=True)
            waiting = client.call(FETCH, server.tokens["reader"], message(server.fetch), finished=True)
            assert client.ends(waiting), "it has no answer that is not taken, so its connection is not closed for it"
        with grpc.insecure_channel(server.target) as channel:
            assert call(channel, FETCH, server.tokens["admin"], server.fetch)[0] is grpc.StatusCode.OK


def test_some_calls_are_left_for_tiering(tmp_path: Path) -> None:
    with (
        guarded(tmp_path, max_concurrent_calls=10) as server,
        grpc.insecure_channel(server.target, [("grpc.enable_retries", 0)]) as channel,
        contextlib.ExitStack() as ends,
    ):
        for _ in range(9):
            stream: Any = channel.unary_stream(WATCH)
            watch = stream(b"", metadata=[("authorization", f"Bearer {server.tokens['reader']}")])
            ends.callback(watch.cancel)
            next(watch)
        assert call(channel, LIST, server.tokens["admin"])[0] is grpc.StatusCode.UNAVAILABLE
        assert call(channel, HEARTBEAT, server.tokens["tierer"])[0] is grpc.StatusCode.OK


def test_large_requests_of_one_caller_are_slowed_down(server: Guarded) -> None:
    request = b"\x0a\x00" * (1 << 19)
    with grpc.insecure_channel(server.target, [("grpc.enable_retries", 0)]) as channel:
        statuses = [call(channel, GET, server.tokens["reader"], request)[0] for _ in range(100)]
        assert grpc.StatusCode.RESOURCE_EXHAUSTED in statuses
        assert call(channel, LIST, server.tokens["admin"])[0] is grpc.StatusCode.OK


def test_a_caller_has_so_many_streams_that_write(server: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluss_tiering.server.security.rates._MAX_WRITES", 0)
    with grpc.insecure_channel(server.target) as channel:
        status, details = call(channel, WRITE, server.tokens["writer"])
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "write rows" in details


def test_work_that_was_too_much_has_to_be_paid_back() -> None:
    now = [1000.0]
    rates, anna = CallRates(100, 100, lambda: now[0]), Identity("token/anna", ())
    rates.spend(anna, WORK_BURST_BYTES)
    rates.check_work(anna)
    rates.spend(anna, WORK_BYTES_PER_S)
    with pytest.raises(ThrottledError) as refused:
        rates.check_work(anna)
    assert refused.value.retry_after_ms == 1000
    rates.check_work(Identity("token/ben", ()))
    now[0] += 1
    rates.check_work(anna)


async def test_an_answer_waits_until_others_of_its_caller_are_taken() -> None:
    answers = UntakenAnswers(10, 15, wait_s=60)
    await answers.reserve("anna", 6)
    waiting = asyncio.ensure_future(answers.reserve("anna", 6))
    await answers.reserve("ben", 9)
    await asyncio.sleep(0)
    assert not waiting.done()
    await answers.reserve("chloe", 100)
    answers.count("chloe", -100)
    answers.count("anna", -6)
    await waiting
    assert answers.total == 15


async def test_an_answer_waits_for_room_of_the_server() -> None:
    answers = UntakenAnswers(10, 15, wait_s=0.01)
    await answers.reserve(None, 100)
    for name in (None, "anna"):
        answers.count("anna", 1)
        with pytest.raises(ThrottledError) as refused:
            await answers.reserve(name, 1)
        answers.count("anna", -1)
    assert refused.value.code is ErrorCode.UNAVAILABLE
    answers.count(None, -100)
    await answers.reserve(None, 16)


def test_only_the_connection_that_is_named_is_closed(server: Guarded) -> None:
    with RawClient(server.target) as client, RawClient(server.target) as other:
        port = int(server.target.rpartition(":")[2])
        name = client._socket.getsockname()
        # A client has a connection before the server has accepted it.
        wait_until(lambda: close_connection(port, f"ipv4:127.0.0.1:{name[1]}"))
        assert client.is_closed()
        assert not close_connection(port, "ipv4:127.0.0.1:1")
        assert not close_connection(port + 1, f"ipv4:127.0.0.1:{other._socket.getsockname()[1]}")
        assert other.ends(other.call(LIST, None, message(b""), finished=True))
