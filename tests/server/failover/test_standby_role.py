"""What a standby server does with a call: it asks the active server, and reads the database only without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio
import pytest

from fluss_tiering.api.v1.lake_tiering_pb2 import ListTieringRoundsRequest
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.failover import standby as standby_module
from fluss_tiering.server.failover.forwarding import FORWARDED_KEY
from fluss_tiering.server.failover.standby import StandbyRole
from fluss_tiering.server.rpc.listener import RpcListener
from fluss_tiering.server.rpc.roles import Role, bytes_handler
from fluss_tiering.server.settings import ServerSettings
from fluss_tiering.wire.errors import code_from_metadata

READ = "/fluss_tiering.v1.LakeTiering/ListTieringRounds"
OTHER = "/fluss_tiering.v1.Tables/ListTables"
STREAM = "/fluss_tiering.v1.Tables/WriteRows"
LARGE = "/fluss_tiering.v1.LakeTiering/CommitLakeTableSnapshot"
"""A call whose requests may have more than 2 MiB."""


async def listen(folder: Path, role: Role) -> tuple[RpcListener, str]:
    """Start a server whose calls go to this role, and return its address."""
    listener = RpcListener(ServerSettings(data_dir=folder, port=0))
    listener.serve(role)
    await listener.start()
    return listener, f"127.0.0.1:{listener.port}"


class Active:
    """A server that answers each call with its own name and the call's message, and notes what came."""

    def __init__(self) -> None:
        self.heard: list[dict[str, str | bytes]] = []
        self.refusal: tuple[grpc.StatusCode, str, str | None] | None = None
        self.reads_before_it_refuses = True
        self.hangs = False
        self.asked = asyncio.Event()
        self.time_remaining: float | None = None

    def handler(self, method: str) -> Any:
        del method
        return bytes_handler(self._answer)

    def check(self) -> None:
        """Refuse nothing."""

    def end_streams(self) -> None:
        """Leave the streams to the tests."""

    async def _answer(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        self.heard.append(dict(context.invocation_metadata()))
        self.time_remaining = context.time_remaining()
        self.asked.set()
        if self.hangs:
            await asyncio.sleep(60)
        if self.refusal is not None:
            status, text, code = self.refusal
            if self.reads_before_it_refuses:
                await anext(requests)
            await context.abort(status, text, () if code is None else (("fluss-error-code", code),))
        await context.send_initial_metadata((("first", "1"),))
        async for request in requests:
            yield b"active: " + request
        context.set_trailing_metadata((("last", "2"),))


def handler_of(read: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(read, lambda request: request, lambda response: response)


class Standby:
    """A standby server between a client and an active server, all real but for what they answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.active = Active()
        self.role = StandbyRole({READ: handler_of(self._read)})
        self.reads = 0

    async def _read(self, request: bytes, context: Any) -> bytes:
        del context
        self.reads += 1
        return b"database: " + request

    async def __aenter__(self) -> Self:
        self._active_server, self.active_target = await listen(self.folder, self.active)
        self._listener, self.target = await listen(self.folder, self.role)
        self._channel = grpc.aio.insecure_channel(self.target, [("grpc.enable_retries", 0)])
        self.role.follow(self.active_target, "")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.role.end_streams()
        await self._channel.close()
        await self.end_active()
        await self._listener.stop(0)

    async def end_active(self) -> None:
        await self._active_server.stop(0)

    def call(self, method: str, request: bytes = b"?", *metadata: tuple[str, str]) -> Any:
        return self._channel.unary_unary(method)(request, timeout=20, metadata=metadata)

    async def refused(self, method: str, *metadata: tuple[str, str]) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await self.call(method, b"?", *metadata)
        return failed.value


@pytest.mark.parametrize("method", [READ, OTHER])
async def test_the_active_server_is_asked_for_reads_too(tmp_path: Path, method: str) -> None:  # S28, D17
    async with Standby(tmp_path) as standby:
        call = standby.call(method, b"who?", ("user", "me"))
        assert await call == b"active: who?"
        assert standby.reads == 0
        (heard,) = standby.active.heard
        assert heard["user"] == "me"
        assert heard[FORWARDED_KEY] == "1"
        if method == OTHER:
            assert dict(await call.initial_metadata())["first"] == "1"
            assert dict(await call.trailing_metadata())["last"] == "2"


async def test_without_an_active_server_the_database_answers_reads_and_all_else_is_refused(
    tmp_path: Path,
) -> None:  # S28, D17
    async with Standby(tmp_path) as standby:
        standby.role.follow(None, "the database holds no leader")
        assert await standby.call(READ, b"who?") == b"database: who?"
        refused = await standby.refused(OTHER)
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        assert refused.details() == "no server is active: the database holds no leader; try again in a moment"
        assert standby.active.heard == []
        standby.role.follow(standby.active_target, "")
        assert await standby.call(READ, b"who?") == b"active: who?"


async def test_an_active_server_that_is_gone_costs_a_read_nothing_and_is_named_to_others(
    tmp_path: Path,
) -> None:  # S28, D17
    async with Standby(tmp_path) as standby:
        assert await standby.call(OTHER) == b"active: ?"
        await standby.end_active()
        assert await standby.call(READ, b"who?") == b"database: who?"
        refused = await standby.refused(OTHER)
        assert code_from_metadata(refused.trailing_metadata()) is ErrorCode.UNAVAILABLE
        assert f"the active server at {standby.active_target} cannot be reached" in str(refused.details())


@pytest.mark.parametrize("method", [READ, OTHER])
async def test_what_the_active_server_refuses_is_refused_in_its_words(tmp_path: Path, method: str) -> None:  # S28, D17
    async with Standby(tmp_path) as standby:
        standby.active.refusal = (grpc.StatusCode.NOT_FOUND, "table db.t does not exist", "TABLE_NOT_EXIST")
        refused = await standby.refused(method)
        assert (refused.code(), refused.details()) == (grpc.StatusCode.NOT_FOUND, "table db.t does not exist")
        assert code_from_metadata(refused.trailing_metadata()) is ErrorCode.TABLE_NOT_EXIST
        assert standby.reads == 0


async def test_a_refusal_that_comes_before_the_request_was_read_is_no_defect_of_the_server(tmp_path: Path) -> None:
    # S28: gRPC then says INTERNAL, for which no driver tries again, in place of the refusal in one of ten calls
    async with Standby(tmp_path) as standby:
        standby.active.refusal = (grpc.StatusCode.UNAVAILABLE, "the server is starting", "UNAVAILABLE")
        standby.active.reads_before_it_refuses = False
        for _ in range(100):
            assert await standby.call(READ, b"who?") == b"database: who?"
            assert (await standby.refused(OTHER)).code() is grpc.StatusCode.UNAVAILABLE


async def test_an_active_server_that_is_starting_or_stopping_leaves_a_read_to_the_database(
    tmp_path: Path,
) -> None:  # S28, D17
    async with Standby(tmp_path) as standby:
        standby.active.refusal = (grpc.StatusCode.UNAVAILABLE, "the server is starting", "UNAVAILABLE")
        assert await standby.call(READ, b"who?") == b"database: who?"
        refused = await standby.refused(OTHER)
        assert refused.details() == "the server is starting", "its own words, not that it cannot be reached"


@pytest.mark.parametrize("method", [READ, OTHER])
async def test_a_call_that_was_forwarded_once_is_not_forwarded_again(tmp_path: Path, method: str) -> None:  # S28, D17
    async with Standby(tmp_path) as standby:
        forwarded = (FORWARDED_KEY, "1")
        if method == READ:
            assert await standby.call(method, b"who?", forwarded) == b"database: who?"
        else:
            refused = await standby.refused(method, forwarded)
            assert refused.code() is grpc.StatusCode.UNAVAILABLE
            told = "no server is active: the server that was active a moment ago is not so any more; try again"
            assert str(refused.details()).startswith(told)
        assert standby.active.heard == []


async def test_calls_in_flight_end_when_another_server_becomes_the_active_one(tmp_path: Path) -> None:  # S28, D17
    async with Standby(tmp_path) as standby:
        stream = standby._channel.stream_stream(STREAM)(timeout=20)
        await stream.write(b"one")
        assert await stream.read() == b"active: one"
        other_server, other_target = await listen(standby.folder, standby.active)
        standby.role.follow(other_target, "")
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "standby server: it is no longer the active server; try again" in str(ended.value.details())
        assert await standby.call(OTHER) == b"active: ?"
        await other_server.stop(0)


async def test_the_same_active_server_keeps_its_connection_and_its_streams(tmp_path: Path) -> None:  # S28
    async with Standby(tmp_path) as standby:
        stream = standby._channel.stream_stream(STREAM)(timeout=20)
        await stream.write(b"one")
        assert await stream.read() == b"active: one"
        standby.role.follow(standby.active_target, "")
        await stream.write(b"two")
        assert await stream.read() == b"active: two"
        await stream.done_writing()


async def test_a_connection_that_was_closed_is_not_kept(tmp_path: Path) -> None:
    async with Standby(tmp_path) as standby:
        for number in range(3):
            standby.role.follow(f"127.0.0.1:{number + 1}", "")
        closing = list(standby.role._closing)
        assert len(closing) == 3, "those to the active server and to the first two of these"
        await asyncio.wait(closing)
        await asyncio.sleep(0)
        assert not standby.role._closing


async def test_a_server_that_cannot_see_the_database_goes_on_and_tells_why(tmp_path: Path) -> None:
    async with Standby(tmp_path) as standby:
        standby.role.doubt("the database is away")
        assert await standby.call(OTHER) == b"active: ?"
        standby.role.follow(None, "the database holds no leader")
        standby.role.doubt("the database is away")
        refused = await standby.refused(OTHER)
        assert refused.details() == "no server is active: the database is away; try again in a moment"


async def test_a_read_that_grpc_ended_in_place_of_the_active_server_is_answered_by_the_database(
    tmp_path: Path,
) -> None:  # S28
    async with Standby(tmp_path) as standby:
        standby.active.refusal = (grpc.StatusCode.INTERNAL, "Internal error from Core", None)
        assert await standby.call(READ, b"who?") == b"database: who?"


def test_a_standby_server_refuses_no_message_by_itself() -> None:
    StandbyRole({}).check()


async def test_a_server_that_has_not_looked_yet_says_that_it_is_starting(tmp_path: Path) -> None:
    listener, target = await listen(tmp_path, StandbyRole({}))
    async with grpc.aio.insecure_channel(target, [("grpc.enable_retries", 0)]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(OTHER)(b"?", timeout=20)
    await listener.stop(0)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert refused.value.details() == "no server is active: this server is starting; try again in a moment"


async def test_the_errors_of_a_read_are_those_of_the_database(tmp_path: Path) -> None:  # S28
    async def refuse(request: bytes, context: Any) -> bytes:
        del request, context
        raise FlussTieringError(ErrorCode.TABLE_NOT_EXIST, "table db.t is not known to the server's database")

    async with Standby(tmp_path) as standby:
        standby.role.follow(None, "none")
        standby.role._reads = {READ: handler_of(refuse)}
        assert code_from_metadata((await standby.refused(READ)).trailing_metadata()) is ErrorCode.TABLE_NOT_EXIST


async def test_a_read_that_cannot_be_decoded_is_refused_like_by_the_active_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Standby(tmp_path) as standby:
        standby.role.follow(None, "none")
        decode = ListTieringRoundsRequest.FromString
        standby.role._reads = {READ: grpc.unary_unary_rpc_method_handler(standby._read, decode)}
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await standby.call(READ, b"\xff\xff\xff")
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "cannot be decoded" in str(refused.value.details())
        assert standby.reads == 0
    assert "Traceback" not in capsys.readouterr().out


async def test_a_read_waits_for_a_silent_active_server_only_for_a_while(  # S28
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "_READ_TIMEOUT_S", 0.2)
    async with Standby(tmp_path) as standby:
        standby.active.hangs = True
        assert await standby.call(READ, b"who?") == b"database: who?"


@pytest.mark.parametrize(("waits_s", "at_most_s"), [(20.0, 40.0), (None, 70.0)])
async def test_a_read_asks_the_active_server_for_no_longer_than_its_client_waits(  # S28
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits_s: float | None, at_most_s: float
) -> None:
    monkeypatch.setattr(standby_module, "_READ_TIMEOUT_S", 60.0)
    async with Standby(tmp_path) as standby:
        assert await standby._channel.unary_unary(READ)(b"who?", timeout=waits_s) == b"active: who?"
        assert standby.active.time_remaining is not None
        assert standby.active.time_remaining <= at_most_s


async def test_a_read_in_flight_is_answered_by_the_database_when_the_active_server_is_no_longer_it(
    tmp_path: Path,
) -> None:  # S28
    async with Standby(tmp_path) as standby:
        standby.active.hangs = True
        reading = asyncio.ensure_future(standby._channel.unary_unary(READ)(b"who?", timeout=50))
        await standby.active.asked.wait()
        standby.role.follow(None, "it resigned")
        assert await reading == b"database: who?"


async def test_a_forwarded_call_has_the_time_that_its_client_gave_it(tmp_path: Path) -> None:  # S28
    async with Standby(tmp_path) as standby:
        assert await standby._channel.unary_unary(OTHER)(b"?", timeout=20) == b"active: ?"
        assert standby.active.time_remaining is not None
        assert standby.active.time_remaining < 40
        assert await standby._channel.unary_unary(OTHER)(b"?") == b"active: ?"
        assert standby.active.time_remaining is None


@pytest.mark.parametrize("method", [READ, OTHER])
async def test_the_first_request_of_a_stream_is_answered_and_no_other_is_read(tmp_path: Path, method: str) -> None:
    async with Standby(tmp_path) as standby:
        stream = standby._channel.stream_stream(method)(timeout=20)
        for _ in range(3):
            await stream.write(b"who?")
        assert await stream.read() == b"active: who?", "the stream of requests has not ended"
        assert await stream.read() is grpc.aio.EOF
        assert len(standby.active.heard) == 1


async def test_a_server_that_stops_says_so_also_to_a_call_without_requests(tmp_path: Path) -> None:  # S28
    async with Standby(tmp_path) as standby:
        standby.role.end_streams()
        stream = standby._channel.stream_stream(STREAM)(timeout=20)
        await stream.done_writing()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert refused.value.details() == "no server is active: this server is stopping; try again in a moment"


async def test_large_messages_are_forwarded(tmp_path: Path) -> None:  # S28
    large = b"x" * (5 << 20)
    async with Standby(tmp_path) as standby:
        options = [("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(standby.target, options) as channel:
            assert await channel.unary_unary(LARGE)(large, timeout=60) == b"active: " + large
