"""Every RPC, found by the services' descriptors, with generated calls against a real server."""

from __future__ import annotations

import os

import grpc
import pytest

from engine_support import ServerProcess
from fluss_tiering.client import TieringClient
from fluss_tiering.client.channel import CHANNEL_OPTIONS
from fluss_tiering.server.edge.methods import SERVICES
from fuzz.fuzzing import SETTINGS, fuzz
from needs import needs


@pytest.fixture
@needs("server")
def server(tmp_path):
    server = ServerProcess(tmp_path, **SETTINGS).start()
    yield server
    if server.process is not None and server.process.poll() is None:
        server.stop()


@pytest.fixture(scope="module")
@needs("server")
def shared_target(tmp_path_factory):
    server = ServerProcess(tmp_path_factory.mktemp("shared")).start()
    yield server.target
    assert server.stop() == 0


@pytest.fixture
def client(server):
    with TieringClient(server.target) as client:
        yield client


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.target, CHANNEL_OPTIONS) as channel:
        yield channel


@pytest.mark.slow
def test_2000_generated_calls_are_answered_with_a_status_that_fits(server, client, channel, record_property):
    # D17, K2, K7, K8, K11, K13, L6, L19, L20, S5, S6, S8, S16
    record_property("answers", str(fuzz(server, client, channel, int(os.environ.get("FUZZ_CALLS", "2000")))))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_20000_generated_calls_are_answered_with_a_status_that_fits(server, client, channel, record_property):
    record_property("answers", str(fuzz(server, client, channel, 20_000)))


@pytest.mark.parametrize(
    "method", [method for service in SERVICES for method in service.methods], ids=lambda each: each.name
)
def test_what_is_no_message_is_an_invalid_argument(shared_target, method):
    path = f"/{method.containing_service.full_name}/{method.name}"
    garbage = b"\xff\xff\xff not a message"
    with grpc.insecure_channel(shared_target) as channel:
        if method.client_streaming:
            call = channel.stream_stream(path)(iter([garbage]), timeout=10)
        else:
            # To the server one answer and a stream of them begin alike.
            call = channel.unary_stream(path)(garbage, timeout=10)
        with pytest.raises(grpc.RpcError):
            list(call)
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"the request of {method.name} cannot be decoded" in call.details()
