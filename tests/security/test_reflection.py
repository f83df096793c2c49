"""Reflection: who may ask it, and until when."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from engine_support import ServerThread
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile

LIST = reflection_pb2.ServerReflectionRequest(list_services="")


def answers_of(channel: grpc.Channel, questions: Any, token: str | None = None) -> Any:
    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    return stub.ServerReflectionInfo(questions, metadata=metadata, timeout=60)


def asked_until(ended: threading.Event) -> Iterator[Any]:
    while not ended.wait(0.02):
        yield LIST


def test_reflection_is_for_those_who_prove_who_they_are(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    token, secret = StaticToken.create("anna", [Grant.parse("reader")], datetime.now(UTC), None)
    file.add(token)
    with (
        ServerThread(tmp_path / "data", tokens_file=file.path) as server,
        grpc.insecure_channel(server.target) as channel,
    ):
        for wrong in (None, "flt_0123456789ab_wrong"):
            with pytest.raises(grpc.RpcError) as refused:
                list(answers_of(channel, iter([LIST]), wrong))
            failed: Any = refused.value
            assert failed.code() is grpc.StatusCode.UNAUTHENTICATED
        ended = threading.Event()
        answers = answers_of(channel, asked_until(ended), secret)
        assert next(answers).list_services_response.service
        file.remove(token.id)
        for _ in answers:
            """It ends once the server has read the file again."""
        ended.set()


def test_reflection_is_for_all_where_nobody_is_asked(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data") as running, grpc.insecure_channel(running.target) as channel:
        assert len(list(answers_of(channel, iter([LIST] * 1000)))) == 1000
