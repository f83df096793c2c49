"""Limits of one caller: calls in a second, calls at once, watchers, and calls without valid credentials."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import pytest
from callers import call

from engine_support import ServerThread, new_table
from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.client import TieringClient
from fluss_tiering.client.aio import AsyncTieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.server.audit.call import address_of_peer, host_of
from fluss_tiering.server.rpc.access import _by_address
from fluss_tiering.server.security import rates as rates_module
from fluss_tiering.server.security.authentication import Authenticated
from fluss_tiering.server.security.executor_tokens import executor
from fluss_tiering.server.security.identity import ANYBODY, Identity
from fluss_tiering.server.security.rates import UNKNOWN_BURST, CallRates, Rate
from fluss_tiering.server.security.roles import Grant
from fluss_tiering.server.security.tokens import StaticToken, TokenFile
from fluss_tiering.server.tiering import broadcaster as broadcaster_module
from fluss_tiering.server.tiering.broadcaster import StatusBroadcaster, StatusWatcher
from fluss_tiering.wire.tables import path_to_pb

LIST = "/fluss_tiering.v1.LakeTiering/ListTieringStatuses"
SCAN = "/fluss_tiering.v1.KvScan/ScanKv"
CREATE_TOKEN = "/fluss_tiering.v1.Tables/CreateReadToken"
WATCH = "/fluss_tiering.v1.LakeTiering/WatchTieringStatuses"
PER_SECOND = 5
AT_ONCE = 3
ANNA, BEN = Identity("token/anna", ()), Identity("token/ben", ())


class Seconds:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[ServerThread, dict[str, str]]]:
    file, tokens = TokenFile(tmp_path / "tokens.json"), {}
    for name, role in (("anna", "reader"), ("ben", "reader"), ("admin", "admin")):
        token, tokens[name] = StaticToken.create(name, [Grant.parse(role)], datetime.now(UTC), None)
        file.add(token)
    with ServerThread(
        tmp_path / "data",
        tokens_file=file.path,
        max_calls_per_second_per_identity=PER_SECOND,
        max_concurrent_calls_per_identity=AT_ONCE,
    ) as running:
        yield running, tokens


def refusals(channel: grpc.Channel, token: str, count: int, method: str = LIST) -> list[grpc.RpcError]:
    """Make calls at the same time, and return the errors of those that were refused."""
    unary: Any = channel.unary_unary(method)
    metadata = [("authorization", f"Bearer {token}")]
    answers = [unary.future(b"", metadata=metadata, timeout=30) for _ in range(count)]
    return [answer.exception() for answer in answers if answer.exception() is not None]


def test_a_caller_with_too_many_calls_is_told_when_to_come_back(server: tuple[ServerThread, dict[str, str]]) -> None:
    running, tokens = server
    with grpc.insecure_channel(running.target) as channel:
        # So many that no machine makes them slowly enough to be allowed.
        refused = refusals(channel, tokens["anna"], 200)
        assert refused
        status, details = call(channel, LIST, tokens["ben"])
        assert status is grpc.StatusCode.OK, details
    for error in refused:
        failed: Any = error
        trailing = dict(failed.trailing_metadata())
        assert failed.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert trailing["fluss-error-code"] == "UNAVAILABLE"
        assert 0 < int(trailing["retry-after-ms"]) <= 1000
        assert "per-identity" in failed.details()


def test_clients_wait_and_call_again(server: tuple[ServerThread, dict[str, str]]) -> None:
    running, tokens = server
    security = ClientSecurity(token=tokens["anna"])
    with TieringClient(running.target, security=security) as client:
        for _ in range(3 * PER_SECOND):
            assert client.list_tiering_statuses() == []

    async def list_often() -> None:
        async with AsyncTieringClient(running.target, security=security) as client:
            for _ in range(2 * PER_SECOND):
                assert await client.list_tiering_statuses() == []

    asyncio.run(list_often())


def test_a_caller_has_so_many_calls_at_once(server: tuple[ServerThread, dict[str, str]]) -> None:
    running, tokens = server
    with grpc.insecure_channel(running.target, [("grpc.enable_retries", 0)]) as channel, contextlib.ExitStack() as ends:
        for _ in range(AT_ONCE):
            stream: Any = channel.unary_stream(WATCH)
            watch = stream(b"", metadata=[("authorization", f"Bearer {tokens['anna']}")])
            ends.callback(watch.cancel)
            next(watch)
        status, details = call(channel, LIST, tokens["anna"])
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "max-concurrent-calls-per-identity" in details
        assert call(channel, LIST, tokens["ben"])[0] is grpc.StatusCode.OK


def test_many_wrong_tokens_from_one_address_do_not_keep_out_good_ones(
    server: tuple[ServerThread, dict[str, str]],
) -> None:
    running, tokens = server
    with grpc.insecure_channel(running.target) as channel:
        refused: list[Any] = refusals(channel, "flt_0123456789ab_wrong", 3 * UNKNOWN_BURST)
        assert call(channel, LIST, tokens["ben"])[0] is grpc.StatusCode.OK
    codes = [error.code() for error in refused]
    assert len(codes) == 3 * UNKNOWN_BURST
    assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert codes.count(grpc.StatusCode.UNAUTHENTICATED) >= UNKNOWN_BURST


def test_the_executors_of_a_query_count_as_calls_of_who_asked(server: tuple[ServerThread, dict[str, str]]) -> None:
    running, tokens = server
    with TieringClient(running.target, security=ClientSecurity(token=tokens["admin"])) as client:
        path = new_table(client).path
    create = tables_pb2.CreateReadTokenRequest(table_path=path_to_pb(path)).SerializeToString()
    with grpc.insecure_channel(running.target, [("grpc.enable_retries", 0)]) as channel:
        executors = {}
        for name in ("anna", "ben"):
            answer = channel.unary_unary(CREATE_TOKEN)(create, metadata=[("authorization", f"Bearer {tokens[name]}")])
            executors[name] = tables_pb2.CreateReadTokenResponse.FromString(answer).token
        errors: list[Any] = refusals(channel, executors["anna"], 200, SCAN)
        throttled = [each for each in errors if each.code() is grpc.StatusCode.RESOURCE_EXHAUSTED]
        assert throttled
        # On a slow machine so many calls may also be more than are answered at once.
        assert all("token/anna" in each.details() for each in throttled)
        assert call(channel, SCAN, executors["ben"])[0] is grpc.StatusCode.INVALID_ARGUMENT, "the request is empty"


def test_tokens_that_another_server_checks_count_by_address() -> None:
    found = Authenticated(executor(None), lambda: True)
    names = set()
    for peer in ("ipv4:10.0.0.1:5000", "ipv4:10.0.0.1:5001", "ipv4:10.0.0.2:5000"):
        context = mock.Mock(peer=lambda peer=peer: peer)
        names.add(_by_address(found, context).identity.counted_as)
    assert names == {"executor/10.0.0.1", "executor/10.0.0.2"}
    anna = Authenticated(ANNA, lambda: True)
    assert _by_address(anna, mock.Mock()) is anna


def test_a_rate_lets_through_a_burst_and_then_so_many_a_second() -> None:
    clock = Seconds()
    rate = Rate(2, 3, clock)
    assert [rate.wait_s("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rate.wait_s("b") == 0
    clock.now += 0.5
    assert [rate.wait_s("a") for _ in range(2)] == [0, 0.5]
    clock.now += 60
    assert [rate.wait_s("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_the_addresses_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_module, "_MAX_KEYS", 2)
    rate = Rate(1, 1, Seconds())
    for key in "abc":
        assert rate.wait_s(key) == 0
    assert rate.wait_s("c") == 1
    assert rate.wait_s("a") == 0


def test_nobody_is_limited_where_nobody_is_asked() -> None:
    rates = CallRates(1, 1, Seconds())
    for _ in range(3):
        rates.check(ANYBODY)
        rates.begin(ANYBODY)


def test_a_call_that_ended_counts_no_longer() -> None:
    rates = CallRates(100, 1, Seconds())
    for _ in range(2):
        for who in (ANNA, BEN):
            rates.begin(who)
        with pytest.raises(ThrottledError):
            rates.begin(ANNA)
        for who in (ANNA, BEN):
            rates.end(who)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ipv4:10.0.0.1:{}", "ipv4:10.0.0.2:1"),
        ("ipv6:%5B2001:db8:0:1::{:x}%5D:1", "ipv6:%5B2001:db8:0:2::1%5D:1"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:{}", "ipv6:%5B::ffff:10.0.0.2%5D:1"),
    ],
    ids=["ports of an IPv4 address", "addresses of an IPv6 network", "ports of an IPv4 address in IPv6"],
)
def test_what_one_machine_can_take_counts_together(one: str, other: str) -> None:
    rates = CallRates(1, 1, Seconds())
    for number in range(UNKNOWN_BURST):
        rates.check_unknown(host_of(address_of_peer(one.format(number + 1))))
    with pytest.raises(ThrottledError) as refused:
        rates.check_unknown(host_of(address_of_peer(one.format(9000))))
    assert refused.value.retry_after_ms == 50
    rates.check_unknown(host_of(address_of_peer(other)))


def test_one_caller_does_not_take_all_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster_module, "MAX_WATCHERS_OF_ONE", 2)
    broadcaster = StatusBroadcaster()
    watchers = [StatusWatcher((), lambda: None, owner="token/anna") for _ in range(3)]
    for watcher in watchers[:2]:
        broadcaster.add(watcher, [])
    with pytest.raises(FlussTieringError) as refused:
        broadcaster.add(watchers[2], [])
    assert refused.value.code is ErrorCode.UNAVAILABLE
    broadcaster.add(StatusWatcher((), lambda: None, owner="token/ben"), [])
    for _ in range(3):
        broadcaster.add(StatusWatcher((), lambda: None), [])
    broadcaster.discard(watchers[0])
    broadcaster.add(watchers[2], [])


def test_the_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(ThrottledError("too many", 250)))
    assert (type(error), error.code, error.message, error.retry_after_ms) == (
        ThrottledError,
        ErrorCode.UNAVAILABLE,
        "too many",
        250,
    )
