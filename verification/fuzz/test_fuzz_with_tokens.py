"""Generated calls against a server that asks who calls, by callers of each kind."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from engine_support import ServerProcess
from fluss_tiering.api.v1 import access_pb2, kv_snapshot_leases_pb2
from fluss_tiering.client import TieringClient
from fluss_tiering.client.channel import CHANNEL_OPTIONS
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile
from fuzz.calls import outcome_of
from fuzz.fuzzing import SEED, SETTINGS, fuzz
from fuzz.messages import strings_of
from needs import needs

GRANTS = {"admin": ("admin",), "reader": ("reader",), "elsewhere": ("admin", "elsewhere.*"), "ended": ("admin",)}
"""The role of each token, and its tables if they are not all."""
NOT_KNOWN = ("ended", "revoked", "unknown", "nobody")
TABLES = ("keyed_", "log_")
"""How the names of the tables begin that the calls are about."""


class Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Brings a token with each call."""

    def __init__(self, token: str) -> None:
        self._metadata = [("authorization", f"Bearer {token}")]

    def _intercept(self, call, details, request):
        return call(details._replace(metadata=self._metadata), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_stream = _intercept


@pytest.fixture
@needs("server")
def guarded(tmp_path):
    """A server and its tokens by their names."""
    file, now = TokenFile(tmp_path / "tokens.json"), datetime.now(UTC)
    tokens = {"unknown": "flt_000000000000_" + "a" * 43}
    for name, grant in {**GRANTS, "revoked": ("admin",)}.items():
        until = now - timedelta(seconds=1) if name == "ended" else None
        token, tokens[name] = StaticToken.create(name, [Grant.parse(*grant)], now, until)
        file.add(token)
        if name == "revoked":
            file.remove(token.id)
    server = ServerProcess(
        tmp_path,
        **SETTINGS,
        FLUSS_TIERING_TOKENS_FILE=str(tmp_path / "tokens.json"),
        FLUSS_TIERING_MAX_CALLS_PER_SECOND_PER_IDENTITY="1000000",
    ).start()
    yield server, tokens
    if server.process is not None and server.process.poll() is None:
        server.stop()


@pytest.mark.long
@pytest.mark.slow
def test_2000_generated_calls_are_answered_to_those_who_may(guarded, record_property):
    calls = int(os.environ.get("FUZZ_CALLS", "2000"))
    record_property("answers", str(fuzz_with_tokens(*guarded, calls)))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_20000_generated_calls_are_answered_to_those_who_may(guarded, record_property):
    record_property("answers", str(fuzz_with_tokens(*guarded, 20_000)))


def fuzz_with_tokens(server, tokens, calls):
    chance = random.Random(SEED)
    admin = ClientSecurity(token=tokens["admin"])
    with ExitStack() as stack:

        def channel_of(name):
            channel = stack.enter_context(grpc.insecure_channel(server.target, CHANNEL_OPTIONS))
            return grpc.intercept_channel(channel, Bearer(tokens[name])) if name in tokens else channel

        channels = {name: channel_of(name) for name in (*GRANTS, "revoked", "unknown", "nobody")}

        def call_by_another(fuzzer):
            """Let somebody call who may not change tables of the model, and return what is wrong with the answer."""
            name = chance.choice(["reader", "elsewhere", *NOT_KNOWN])
            method, requests = fuzzer.next_call()
            role = method.GetOptions().Extensions[access_pb2.required_role]
            reads = role == access_pb2.PB_ROLE_READER
            if name == "reader" and reads:
                # Scanners and watches of a reader count in the model's limits.
                return []
            # Those who are refused are waited for, also where the answer would be a stream that goes on.
            outcome = outcome_of(channels[name], method, requests, None if name == "elsewhere" else 20.0)
            texts = [outcome.details, *(text for each in outcome.answers for text in strings_of(each))]
            if name in NOT_KNOWN:
                # Beyond a rate, callers of an address that prove nothing hear only that there are too many.
                fits = outcome.status in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
            elif name == "reader":
                fits = outcome.status is grpc.StatusCode.PERMISSION_DENIED
            else:
                asked = b"".join(requests).decode(errors="replace")
                fits = not any(begin in text and begin not in asked for begin in TABLES for text in texts)
                if method.name == "AcquireKvSnapshotLease" and outcome.answers:
                    # Without tables, the lease id alone begins an attempt, which makes those before it stale.
                    request = kv_snapshot_leases_pb2.AcquireKvSnapshotLeaseRequest.FromString(requests[0])
                    fuzzer.model.unheard(method.name, request)
            return [] if fits else [f"{name}: {method.full_name} was answered with {outcome}"]

        with TieringClient(server.target, security=admin) as client:
            answers = fuzz(server, client, channels["admin"], calls, besides=call_by_another, token=tokens["admin"])
    return answers
