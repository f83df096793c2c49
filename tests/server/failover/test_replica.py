"""One of several servers, in this process and on a real PostgreSQL: what it opens, serves and closes, and when."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from certificates import Authority
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.failover import replica as replica_module
from fluss_tiering.server.failover.leadership import LeadershipFence
from fluss_tiering.server.failover.replica import FailoverReplica
from fluss_tiering.server.rpc.listener import RpcListener
from fluss_tiering.server.rpc.roles import Role, bytes_handler
from fluss_tiering.server.settings import load_settings
from fluss_tiering.server.store.note import StoreKind, note_database
from fluss_tiering.server.store.store import SqlTieringStore
from postgres_support import Postgres, socket_of, through
from tcp_proxy import TcpProxy
from waiting import WAIT_S

LEASE_MS = 8000
"""So long that a busy machine renews it in time."""
SHORT_LEASE_MS = 2000
"""For tests in which the leadership lapses: if it lapses once more, they go on all the same."""
METHOD = "/fluss_tiering.v1.Tables/ListTables"
READ = "/fluss_tiering.v1.KvSnapshotLeases/ListKvSnapshotLeases"
SERVICE = "fluss_tiering.v1.Tables"


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@dataclass
class Active:
    """Stands for the components of an active server: a role that answers, and a store behind the fence."""

    name: str
    check: Callable[[], None]
    fence: LeadershipFence
    store: SqlTieringStore
    server_id: str | None = None
    streams_ended: bool = False
    closed: bool = False

    def handler(self, method: str) -> Any:
        async def answer(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            del context
            async for request in requests:
                yield f"{self.name}: ".encode() + request

        del method
        return bytes_handler(answer)

    def end_streams(self) -> None:
        self.streams_ended = True


@dataclass
class Server:
    """A server whose components are opened by the test."""

    name: str
    folder: Path
    url: str
    identity: Any = None
    lease_ms: int = LEASE_MS
    tls: Mapping[str, Path] = field(default_factory=dict)
    opened: list[Active] = field(default_factory=list)
    process_ended: threading.Event = field(default_factory=threading.Event)
    before_opening: Callable[[], Awaitable[None]] | None = None
    on_unwinding: Callable[[], None] | None = None
    before_closing: Callable[[], None] | None = None
    closed: bool = False

    def make(self) -> None:
        settings = load_settings(data_dir=self.folder, port=0, leader_lease=self.lease_ms, **self.tls)
        self.listener = RpcListener(settings)
        self.replica = FailoverReplica(
            settings,
            self.url,
            backend=SimpleNamespace(identity=lambda: self.identity),  # type: ignore[arg-type]
            listener=self.listener,
            open_active=self._open,
            monotonic=time.monotonic,
            end_process=self.process_ended.set,
        )

    async def start(self) -> None:
        self.make()
        await self.listener.start()
        await self.replica.start()

    async def end(self) -> None:
        try:
            with suppress(FlussTieringError):
                await self.replica.stop()
            if not self.closed:
                await self.replica.close()
        finally:
            await self.listener.stop(0)

    async def health(self) -> str:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.listener.port}") as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=SERVICE), timeout=20
            )
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    async def call(self, method: str = METHOD) -> bytes | str:
        """Return the answer to a call, or why there was none."""
        address, options = f"127.0.0.1:{self.listener.port}", [("grpc.enable_retries", 0)]
        if self.tls:
            trusted = grpc.ssl_channel_credentials(self.tls["tls_ca_file"].read_bytes())
            opened = grpc.aio.secure_channel(address, trusted, options)
        else:
            opened = grpc.aio.insecure_channel(address, options)
        async with opened as channel:
            try:
                return bytes(await channel.unary_unary(method)(b"", timeout=20))  # type: ignore[misc]
            except grpc.aio.AioRpcError as error:
                return str(error.details())

    async def _open(self, stack: AsyncExitStack, fence: LeadershipFence, check: Callable[[], None]) -> Role:
        if self.on_unwinding is not None:
            stack.callback(self.on_unwinding)
        if self.before_opening is not None:
            await self.before_opening()
        store = await asyncio.to_thread(SqlTieringStore.open, self.url, fence)
        active = Active(self.name, check, fence, store)
        stack.callback(self._close, active)
        self.opened.append(active)
        return active

    def _close(self, active: Active) -> None:
        if self.before_closing is not None:
            self.before_closing()
        active.closed = True
        active.store.close()


@pytest.fixture
async def server(tmp_path: Path, postgres_url: str) -> AsyncIterator[Callable[..., Server]]:
    made: list[Server] = []

    def make(name: str, url: str = postgres_url, **options: Any) -> Server:
        made.append(Server(name, tmp_path / name, url, **options))
        return made[-1]

    yield make
    for each in reversed(made):
        if hasattr(each, "replica"):
            await each.end()


def write(active: Active, token: int) -> None:
    with active.store.transaction() as transaction:
        transaction.put_attempt_token(token)


async def test_a_server_alone_leads_when_its_start_has_returned(
    server: Callable[..., Server], postgres: Postgres
) -> None:  # S28
    one = server("one")
    with capture_logs() as log:
        await one.start()
    (active,) = one.opened
    assert one.replica.is_active
    assert (one.replica.database_reachable, one.replica.waits_for_data_folder) == (True, False)
    assert await one.call() == b"one: "
    assert await one.health() == "SERVING"
    active.check()
    write(active, 7)
    ((token,),) = postgres.execute("SELECT token FROM server_transaction", one.url)
    assert await asyncio.to_thread(active.fence.was_committed, str(token)), "the fence can ask the database"
    assert [entry["generation"] for entry in log if entry["event"] == "this server is the active one"] == [1]
    renewed = asyncio.Event()
    tried = one.replica._note_database
    one.replica._note_database = lambda problem: (tried(problem), renewed.set())  # type: ignore[assignment, return-value]
    for _ in range(2):
        renewed.clear()
        await renewed.wait()
    assert await one.health() == "SERVING", "also after the leadership was renewed"
    await one.replica.stop()
    assert active.closed
    assert not one.process_ended.is_set()


async def test_the_second_waits_forwards_reads_and_takes_over(
    server: Callable[..., Server], postgres: Postgres
) -> None:  # S28, S24
    first, second = server("first"), server("second")
    await first.start()
    await second.start()
    assert (first.replica.is_active, second.replica.is_active) == (True, False)
    assert second.opened == []
    assert (second.replica.database_reachable, second.replica.waits_for_data_folder) == (True, False)
    assert await second.call() == b"first: "
    assert await second.health() == "NOT_SERVING"
    ((first_id,),) = postgres.execute("SELECT holder_id FROM server_leader", first.url)

    await first.replica.stop()
    assert first.opened[0].closed
    assert second.opened == [], "the first one lets nobody take over before it has closed"
    assert isinstance(await second.call(READ), bytes), "the database answers reads"
    await first.replica.close()
    first.closed = True
    refused = await first.call()
    assert "no server is active: this server is stopping" in str(refused)
    await until(lambda: second.replica.is_active and second.opened)
    await until(second.replica._settled.is_set)
    assert await second.call() == b"second: "
    assert postgres.execute("SELECT holder_id FROM server_leader", first.url) != [(first_id,)], "each has its own id"
    write(second.opened[0], 8)


async def test_a_standby_server_with_tls_forwards_over_tls(server: Callable[..., Server], tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.pair("server", "a server")
    tls = {"tls_cert_file": pair.cert, "tls_key_file": pair.key, "tls_ca_file": authority.cert}
    first, second = server("first", tls=tls), server("second", tls=tls)
    await first.start()
    await second.start()
    assert await second.call() == b"first: "


async def test_who_was_superseded_closes_and_ends_with_the_reason(
    server: Callable[..., Server], postgres: Postgres
) -> None:  # S24
    one = server("one")
    await one.start()
    (active,) = one.opened
    lost = asyncio.ensure_future(one.replica.wait_until_lost())
    postgres.execute("UPDATE server_leader SET generation = generation + 1, address = '127.0.0.1:1'", one.url)
    with pytest.raises(FlussTieringError, match="another server took over") as error:
        await asyncio.wait_for(lost, WAIT_S)
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert active.streams_ended
    assert not one.replica.is_active
    assert isinstance(await one.call(), str), "it serves no longer"
    assert await one.health() == "NOT_SERVING"
    with pytest.raises(FlussTieringError):
        active.check()
    await one.replica.stop()
    assert active.closed


async def test_a_leader_without_a_database_closes_and_leads_again_when_it_is_back(
    server: Callable[..., Server], postgres_url: str
) -> None:  # D1
    with TcpProxy(socket_of(postgres_url)) as network:
        one = server("one", through(network.port, postgres_url), lease_ms=SHORT_LEASE_MS)
        await one.start()
        network.cut()
        await until(lambda: not one.replica.database_reachable)
        await until(lambda: one.opened[0].closed)
        assert one.opened[0].streams_ended
        assert not one.replica.is_active
        assert await one.health() == "NOT_SERVING"
        assert str(await one.call()).startswith("no server is active: ")
        network.mend()
        await until(lambda: len(one.opened) >= 2 and one.replica.is_active)
        await until(lambda: one.replica.database_reachable)
        while await one.call() != b"one: ":
            """It serves in a moment."""
    assert not one.process_ended.is_set()


async def test_a_waiting_server_without_a_database_goes_on_forwarding(
    server: Callable[..., Server], postgres_url: str
) -> None:  # D1
    with TcpProxy(socket_of(postgres_url)) as network:
        first = server("first")
        second = server("second", through(network.port, postgres_url), lease_ms=SHORT_LEASE_MS)
        await first.start()
        await second.start()
        with capture_logs() as log:
            network.cut()
            await until(lambda: not second.replica.database_reachable)
            assert await second.call() == b"first: "
            network.mend()
            await until(lambda: second.replica.database_reachable)
        assert "the database cannot be used" in [each["event"] for each in log if each["log_level"] == "warning"]
        assert await second.call() == b"first: "


async def test_a_server_that_lost_transactions_loads_anew_and_goes_on(
    server: Callable[..., Server], postgres: Postgres
) -> None:  # D9
    one = server("one")
    await one.start()
    write(one.opened[0], 7)
    postgres.execute("UPDATE server_transaction SET token = 1", one.url)
    await until(lambda: len(one.opened) == 2)
    assert one.opened[0].closed
    assert one.opened[0].streams_ended
    await until(lambda: one.replica.is_active)
    with pytest.raises(FlussTieringError):
        one.opened[0].check()
    write(one.opened[1], 8)
    assert not one.process_ended.is_set()


async def test_a_server_leads_while_it_waits_for_the_data_folder(
    server: Callable[..., Server], postgres: Postgres
) -> None:  # S24
    one, held = server("one"), True

    async def folder() -> None:
        if held:
            raise FlussTieringError(ErrorCode.DATA_DIR_IN_USE, "the folder is held by process 7")

    one.before_opening = folder
    with capture_logs() as log:
        await one.start()
        assert one.replica.waits_for_data_folder
        assert one.opened == []
        assert await one.health() == "NOT_SERVING"
        told = "no server is active: this server is taking over, but the folder is held by process 7; try again"
        assert str(await one.call()).startswith(told)
        until_when = postgres.execute("SELECT valid_until FROM server_leader", one.url)
        await until(lambda: postgres.execute("SELECT valid_until FROM server_leader", one.url) > until_when)
        assert one.replica.is_active
        assert one.replica.waits_for_data_folder
        held = False
        await until(lambda: one.opened)
        await until(lambda: not one.replica.waits_for_data_folder)
    assert [each["event"] for each in log].count("take-over waits for the data folder") == 1
    while await one.call() != b"one: ":
        """It serves in a moment."""
    assert await one.health() == "SERVING"


async def test_what_prevents_a_take_over_ends_the_start(server: Callable[..., Server]) -> None:  # S3
    one = server("one")

    async def fail() -> None:
        raise FlussTieringError(ErrorCode.CORRUPT_DATA, "the folder holds nothing that can be read")

    one.before_opening = fail
    with pytest.raises(FlussTieringError, match="nothing that can be read"):
        await one.start()
    assert not one.replica.waits_for_data_folder


@pytest.mark.parametrize("lost", [True, False])
async def test_only_a_server_that_leads_no_longer_is_ended_if_it_cannot_close(
    server: Callable[..., Server], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:  # D1
    monkeypatch.setattr(replica_module, "_CLOSING_S", 0.05)
    one = server("one")
    await one.start()

    def hang() -> None:
        if lost:
            assert one.process_ended.wait(WAIT_S)
        else:
            time.sleep(0.5)

    one.before_closing = hang
    if lost:
        postgres.execute("UPDATE server_leader SET generation = generation + 1", one.url)
        with pytest.raises(FlussTieringError):
            await one.replica.wait_until_lost()
    await one.replica.stop()
    assert one.process_ended.is_set() is lost
    assert one.opened[0].closed


async def test_a_server_is_ended_if_its_leadership_lapses_while_it_closes_and_a_call_of_the_database_hangs(
    server: Callable[..., Server], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # D1
    monkeypatch.setattr(replica_module, "_CLOSING_S", 0.05)
    with TcpProxy(socket_of(postgres_url)) as network:
        one = server("one", through(network.port, postgres_url), lease_ms=SHORT_LEASE_MS)
        await one.start()
        network.cut()
        assert one.replica.is_active
        hanging = threading.Thread(target=write_in_vain, args=(one.opened[0],), daemon=True)
        hanging.start()

        def join() -> None:
            # The process would be gone.
            assert one.process_ended.wait(WAIT_S)
            network.drop_connections()
            hanging.join(WAIT_S)

        one.before_closing = join
        await one.replica.stop()
        assert one.process_ended.is_set()
        assert not one.replica.is_active
        network.mend()


async def test_a_waiting_server_ends_although_a_read_of_the_database_hangs(
    server: Callable[..., Server], postgres_url: str
) -> None:  # D1
    with TcpProxy(socket_of(postgres_url)) as network:
        first, second = server("first"), server("second", through(network.port, postgres_url))
        await first.start()
        await second.start()
        store = second.replica._store
        assert store is not None, "it has looked whether the database is that of its storage"
        network.cut()
        # As for a call that reads, which only a server asks that sees no active one.
        reading = asyncio.ensure_future(second.replica._threads.control(store.has_statuses))
        await until(lambda: second.replica._threads.turns._begun)
        second.closed = True
        await second.replica.stop()
        await asyncio.wait_for(second.replica.close(), WAIT_S)
        with pytest.raises(FlussTieringError) as failed:
            await reading
        assert failed.value.code is ErrorCode.UNAVAILABLE


def write_in_vain(active: Active) -> None:
    with suppress(FlussTieringError):
        write(active, 7)


async def test_a_server_is_ended_if_its_leadership_lapses_while_it_takes_over_and_a_call_of_the_database_hangs(
    server: Callable[..., Server], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # D1
    monkeypatch.setattr(replica_module, "_CLOSING_S", 0.05)
    with TcpProxy(socket_of(postgres_url)) as network:
        one = server("one", through(network.port, postgres_url), lease_ms=SHORT_LEASE_MS)
        unwound = asyncio.Event()

        async def hang() -> None:
            network.cut()
            await asyncio.Event().wait()

        def join() -> None:
            # As the threads are joined of which one waits for the database.
            assert one.process_ended.wait(WAIT_S)
            unwound.set()

        one.before_opening, one.on_unwinding = hang, join
        starting = asyncio.ensure_future(one.start())
        await asyncio.wait_for(unwound.wait(), 2 * WAIT_S)
        assert one.process_ended.is_set()
        assert not one.replica.is_active
        network.mend()
        one.before_opening = one.on_unwinding = None
        await starting
        assert len(one.opened) == 1


@pytest.mark.parametrize("used_with", StoreKind)
async def test_a_waiting_server_refuses_a_folder_that_was_not_used_with_postgresql(
    server: Callable[..., Server], used_with: StoreKind
) -> None:  # S3
    first = server("first")
    await first.start()
    first.opened[0].store.bind("its own", "/data")
    waiting = server("waiting", identity=SimpleNamespace(storage_id="its own", location="/mine"))
    waiting.folder.mkdir()
    note_database(waiting.folder, used_with, "the database", is_new=True)
    if used_with is StoreKind.POSTGRESQL:
        await waiting.start()
        assert await waiting.call() == b"first: "
    else:
        with pytest.raises(FlussTieringError, match="was used with the SQLite file") as refused:
            await waiting.start()
        assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("identity", ["another", "its own", None])
async def test_a_waiting_server_with_another_storage_is_refused(
    server: Callable[..., Server], identity: str | None
) -> None:  # S3
    first = server("first")
    await first.start()
    first.opened[0].store.bind("its own", "/data")
    waiting = server(
        "waiting", identity=None if identity is None else SimpleNamespace(storage_id=identity, location="/mine")
    )
    if identity == "another":
        with pytest.raises(FlussTieringError, match="belongs to the storage at /data") as refused:
            await waiting.start()
        assert "/mine" in refused.value.message
    else:
        await waiting.start()
        assert await waiting.call() == b"first: "


async def test_a_server_waits_beside_a_database_that_is_not_migrated(
    server: Callable[..., Server], postgres_url: str
) -> None:  # S3
    leading, migrating = server("leading"), asyncio.Event()
    leading.before_opening = migrating.wait  # type: ignore[assignment]
    starting = asyncio.ensure_future(leading.start())
    await until(lambda: hasattr(leading, "replica") and leading.replica.is_active)
    waiting = server("waiting", identity=SimpleNamespace(storage_id="any", location="/mine"))
    await waiting.start()
    assert str(await waiting.call(READ)) != ""
    migrating.set()
    await starting
    assert await waiting.call() == b"leading: "


@pytest.mark.parametrize(
    ("host", "advertised", "expected"),
    [
        ("127.0.0.1", "", "127.0.0.1:{port}"),
        ("0.0.0.0", "", "{host}:{port}"),
        ("::", "", "{host}:{port}"),
        ("::1", "", "[::1]:{port}"),
        ("127.0.0.1", "there:77", "there:77"),
    ],
)
async def test_the_others_are_told_an_address_that_they_reach(
    tmp_path: Path, postgres_url: str, host: str, advertised: str, expected: str
) -> None:  # S28
    settings = load_settings(
        data_dir=tmp_path,
        host=host,
        port=0,
        advertised_address=advertised,
        leader_lease=LEASE_MS,
        allow_insecure=True,
    )
    replica = FailoverReplica(
        settings,
        postgres_url,
        backend=SimpleNamespace(identity=lambda: None),  # type: ignore[arg-type]
        listener=SimpleNamespace(port=1234),  # type: ignore[arg-type]
        open_active=None,  # type: ignore[arg-type]
        monotonic=time.monotonic,
        end_process=None,
    )
    assert replica._address == expected.format(host=socket.gethostname(), port=1234)
    await replica.close()


async def test_each_try_to_renew_tells_whether_the_database_can_be_reached(tmp_path: Path, postgres_url: str) -> None:
    said: list[bool] = []

    async def set_serving(serving: bool) -> None:
        said.append(serving)

    replica = FailoverReplica(
        load_settings(data_dir=tmp_path, port=0, leader_lease=LEASE_MS),
        postgres_url,
        backend=SimpleNamespace(identity=lambda: None),  # type: ignore[arg-type]
        listener=SimpleNamespace(port=1234, set_serving=set_serving),  # type: ignore[arg-type]
        open_active=None,  # type: ignore[arg-type]
        monotonic=time.monotonic,
        end_process=None,
    )
    for problem in (FlussTieringError(ErrorCode.UNAVAILABLE, "away"), None):
        await replica._tried_to_renew(problem)
        assert replica.database_reachable is (problem is None)
    assert said == [False, False], "it does not lead"
    # Nobody leads, but this server could not take over either. It looks again.
    await replica._follow(None, None)
    assert replica.database_reachable
    assert not replica.is_active
    await replica.close()
