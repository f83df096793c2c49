"""A round's calls to a server that fails for a moment, what is said meanwhile, and the text of a failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import pytest

from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.retry import Retry, RetryingClient
from fluss_tiering.spark.runtime import SYSTEM
from fluss_tiering.spark.table_run import _text
from fluss_tiering.wire.errors import status_of, trailing_metadata_of

DESCRIBE = "/fluss_tiering.v1.Tables/DescribeStorage"
NO_RETRY = ("grpc-retry-pushback-ms", "-1")
"""Tells gRPC not to repeat the call by itself, which it would do for a few seconds."""
Failure = tuple[grpc.StatusCode, str, ErrorCode | None]

TRANSIENT: Sequence[Failure] = [
    # Ours: the server starts, stops, waits for its database, or was replaced by another one.
    (grpc.StatusCode.UNAVAILABLE, "the server is starting", ErrorCode.UNAVAILABLE),
    (grpc.StatusCode.UNAVAILABLE, "another server took over", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    # gRPC's own, and those of proxies in between: nothing listens, no answer came in time, too many calls at once.
    (grpc.StatusCode.UNAVAILABLE, "connection refused", None),
    (grpc.StatusCode.DEADLINE_EXCEEDED, "deadline exceeded", None),
    (grpc.StatusCode.CANCELLED, "the proxy went away", None),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many concurrent calls", None),
]
LASTING: Sequence[Failure] = [
    (status_of(code), "no", code)
    for code in (ErrorCode.FENCED_TIERING_EPOCH, ErrorCode.STALE_ATTEMPT, ErrorCode.CORRUPT_DATA, ErrorCode.STORAGE)
] + [
    (grpc.StatusCode.UNIMPLEMENTED, "no such method", None),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max", None),
]


class FailingServer(grpc.GenericRpcHandler):
    """Answers the first calls with a failure, and all later ones as a tiering server does."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.calls = 0

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if handler_call_details.method != DESCRIBE:
            return None
        return grpc.unary_unary_rpc_method_handler(self._describe)

    def _describe(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls += 1
        if self.failures:
            status, text, code = self.failures.pop()
            context.set_trailing_metadata((*(trailing_metadata_of(code) if code else ()), NO_RETRY))
            context.abort(status, text)
        return tables_pb2.DescribeStorageResponse(kind="embedded", data_dir_id="it").SerializeToString()


@pytest.fixture
def failing() -> Iterator[tuple[FailingServer, str]]:
    handler = FailingServer()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, f"127.0.0.1:{port}"
    server.stop(None)


@pytest.mark.parametrize("failure", TRANSIENT, ids=lambda each: f"{each[0].name}-{each[2]}")
def test_a_transient_error_costs_a_retry(failing: tuple[FailingServer, str], failure: Failure) -> None:
    # Fluss #3681, D17
    handler, target = failing
    handler.failures = [failure] * 2
    with RetryingClient(target, stopped=threading.Event()) as client:
        assert client.describe_storage().data_dir_id == "it"
    assert handler.calls == 3


@pytest.mark.parametrize("failure", LASTING, ids=lambda each: f"{each[0].name}-{each[2]}")
def test_an_error_that_will_not_pass_is_told_at_once(failing: tuple[FailingServer, str], failure: Failure) -> None:
    # Fluss #3681, D17
    handler, target = failing
    handler.failures = [failure]
    with RetryingClient(target, stopped=threading.Event()) as client, pytest.raises(FlussTieringError) as refused:
        client.describe_storage()
    assert handler.calls == 1
    assert refused.value.code is not ErrorCode.UNAVAILABLE


class Pauses:
    """An event that is never set. Each pause takes so many seconds of the clock."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self._seconds = seconds

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float | None = None) -> bool:
        del seconds
        self.now += self._seconds
        return False


@pytest.mark.parametrize(("pause", "told"), [(4.0, 3), (61.0, 40), (0.5, 1)])
def test_a_failure_is_told_at_once_and_once_a_minute(pause: float, told: int, caplog: pytest.LogCaptureFixture) -> None:
    pauses = Pauses(pause)
    left = iter(range(40))

    def call() -> str:
        if next(left, None) is None:
            return "done"
        raise FlussTieringError(ErrorCode.UNAVAILABLE, "connection refused")

    caplog.set_level(logging.WARNING)
    runtime = replace(SYSTEM, monotonic=lambda: pauses.now)
    assert Retry(pauses, what="the stream broke", runtime=runtime)(call) == "done"
    assert caplog.messages == ["the stream broke: trying again: connection refused"] * told


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (FlussTieringError(ErrorCode.STORAGE, "the lake refused password=hunter2"), "the lake refused password=***"),
        (ValueError("token=hunter2 of the lake"), "ValueError: token=*** of the lake"),
        (KeyError("db.t"), "KeyError: 'db.t'"),
    ],
)
def test_a_failure_is_told_with_its_kind_and_without_secrets(failure: Exception, text: str) -> None:  # S10, S11
    assert _text(failure) == text


@pytest.mark.parametrize("kind", [lambda text: FlussTieringError(ErrorCode.STORAGE, text), ValueError])
def test_a_failure_is_cut_before_it_is_sent(kind) -> None:  # S11, D17
    text = _text(kind("é" * 5000))
    assert len(text) == 2048
    assert text.endswith("é…")


def test_an_unexpected_failure_is_in_the_log_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:  # S10
    with caplog.at_level(logging.ERROR):
        _text(FlussTieringError(ErrorCode.STORAGE, "expected"))
        assert caplog.records == []
        _text(ValueError("unexpected"))
    (record,) = caplog.records
    assert record.exc_info is not None
