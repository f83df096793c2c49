"""Health and reflection: what nobody may ask, and how often."""

from __future__ import annotations

import queue
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from raw_http2 import RawClient, message

from engine_support import ServerThread
from fluss_tiering.server.rpc.limits import open_services
from fluss_tiering.server.security.roles import Grant
from fluss_tiering.server.security.tokens import StaticToken, TokenFile

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
UNFINISHED = struct.pack(">BI", 0, 1 << 20) + b"\0" * 1000


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[Path, str]:
    file = TokenFile(tmp_path / "tokens.json")
    token, secret = StaticToken.create("anna", [Grant.parse("reader")], datetime.now(UTC), None)
    file.add(token)
    return file.path, secret


@pytest.fixture
def server(tmp_path: Path, tokens: tuple[Path, str]) -> Iterator[ServerThread]:
    with ServerThread(tmp_path / "data", tokens_file=tokens[0], max_calls_per_second_per_identity=5) as running:
        yield running


def reflect(channel: grpc.Channel, count: int, token: str | None = None) -> int:
    """Ask reflection so often, and return the number of answers."""
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    return len(list(stub.ServerReflectionInfo(iter([asked] * count), metadata=metadata, timeout=60)))


def code(error: Any) -> grpc.StatusCode:
    answered: grpc.StatusCode = error.value.code()
    return answered


def test_reflection_is_for_those_who_prove_who_they_are(server: ServerThread, tokens: tuple[Path, str]) -> None:
    with grpc.insecure_channel(server.target) as channel:
        for token in (None, "flt_0123456789ab_wrong"):
            with pytest.raises(grpc.RpcError) as refused:
                reflect(channel, 1, token)
            assert code(refused) is grpc.StatusCode.UNAUTHENTICATED
        assert reflect(channel, 3, tokens[1]) == 3


def test_a_stream_of_reflection_ends_when_its_token_is_revoked(server: ServerThread, tokens: tuple[Path, str]) -> None:
    asked: queue.SimpleQueue[reflection_pb2.ServerReflectionRequest] = queue.SimpleQueue()
    asked.put(reflection_pb2.ServerReflectionRequest(list_services=""))
    with grpc.insecure_channel(server.target) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        metadata = [("authorization", f"Bearer {tokens[1]}")]
        answers = stub.ServerReflectionInfo(iter(asked.get, None), metadata=metadata)
        assert next(answers).list_services_response.service
        TokenFile(tokens[0]).remove(TokenFile(tokens[0]).read()[0].id)
        with pytest.raises(grpc.RpcError) as ended:
            next(answers)
        assert code(ended) is grpc.StatusCode.UNAUTHENTICATED
        asked.put(reflection_pb2.ServerReflectionRequest())


def test_each_question_to_reflection_counts(server: ServerThread, tokens: tuple[Path, str]) -> None:
    with grpc.insecure_channel(server.target) as channel, pytest.raises(grpc.RpcError) as refused:
        reflect(channel, 1000, tokens[1])
    assert code(refused) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_reflection_is_for_all_where_nobody_is_asked(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data") as running, grpc.insecure_channel(running.target) as channel:
        assert reflect(channel, 1000) == 1000


@pytest.mark.parametrize("method", [CHECK, WATCH])
def test_a_question_for_health_that_is_not_finished_ends(server: ServerThread, method: str) -> None:
    with RawClient(server.target) as client:
        assert client.ends(client.call(method, None, UNFINISHED, finished=False))


def test_questions_for_health_from_one_address_are_limited(
    tmp_path: Path, tokens: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_services, "_PER_SECOND", 1e-9)
    monkeypatch.setattr(open_services, "_BURST", 3)
    with (
        ServerThread(tmp_path / "data", tokens_file=tokens[0]) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):
            assert stub.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as refused:
            stub.Check(health_pb2.HealthCheckRequest())
    assert code(refused) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_one_address_has_so_many_watchers_of_health(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_services, "_AT_ONCE", 2)
    with grpc.insecure_channel(server.target) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
        for watch in watches:
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as refused:
            next(stub.Watch(health_pb2.HealthCheckRequest()))
        assert code(refused) is grpc.StatusCode.RESOURCE_EXHAUSTED
        for watch in watches:
            watch.cancel()


def test_a_watcher_of_health_that_takes_nothing_holds_nobody_up(server: ServerThread) -> None:
    listener = server.server._listener
    assert listener is not None
    with RawClient(server.target, window=0) as client, grpc.insecure_channel(server.target) as channel:
        # Health holds its lock when the first answer is on its way, which gRPC begins with the headers.
        assert client.begins(client.call(WATCH, None, message(b""), finished=True))
        server.run(listener.set_serving(False, server_serves=False))
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        server.run(listener.set_serving(True))
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        assert client.is_open(), "nobody waited until the connection was closed"
        watch.cancel()
