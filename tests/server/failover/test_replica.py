"""One of several servers, in this process and on a real PostgreSQL: what it opens and serves, and when."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import refused
from replica_servers import LEASE_MS, SHORT_LEASE_MS, Server, until, write
from structlog.testing import capture_logs

from fluss_tiering.model.errors import DataDirInUseError, ErrorCode, FlussTieringError
from fluss_tiering.server.core.store.note import StoreKind, note_database
from fluss_tiering.server.failover.election import Leader
from fluss_tiering.server.failover.replica import FailoverReplica
from fluss_tiering.server.settings.server_settings import load_settings
from postgres_support import Postgres, socket_of, through
from tcp_proxy import TcpProxy
from waiting import WAIT_S


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


async def test_the_second_waits_names_the_first_and_takes_over(
    server: Callable[..., Server], postgres: Postgres
) -> None:  # S28, S24
    first, second = server("first"), server("second")
    await first.start()
    await second.start()
    assert (first.replica.is_active, second.replica.is_active) == (True, False)
    assert second.opened == []
    assert (second.replica.database_reachable, second.replica.waits_for_data_folder) == (True, False)
    assert str(await second.call()).startswith(second.waits_for(first))
    assert await second.health() == "NOT_SERVING"
    ((first_id,),) = postgres.execute("SELECT holder_id FROM server_leader", first.url)

    await first.replica.stop()
    assert first.opened[0].closed
    assert second.opened == [], "the first one lets nobody take over before it has closed"
    await first.replica.close()
    first.closed = True
    refused = await first.call()
    assert "no server is active: this server is stopping" in str(refused)
    await until(lambda: second.replica.is_active and second.opened)
    await until(second.replica._settled.is_set)
    assert await second.call() == b"second: "
    assert postgres.execute("SELECT holder_id FROM server_leader", first.url) != [(first_id,)], "each has its own id"
    write(second.opened[0], 8)


async def test_a_server_of_an_older_version_ends_instead_of_taking_over_from_a_newer_one(
    server: Callable[..., Server], postgres: Postgres
) -> None:
    newer, older = server("newer"), server("older")
    await newer.start()
    await older.start()
    postgres.execute("UPDATE alembic_version SET version_num = '9999'", newer.url)
    await newer.replica.stop()
    await newer.replica.close()
    newer.closed = True
    with pytest.raises(FlussTieringError, match="has the layout 9999, and this server knows"):
        await asyncio.wait_for(older.replica.wait_until_lost(), WAIT_S)
    assert postgres.execute("SELECT generation FROM server_leader", newer.url) == [(1,)], "it never led"


async def test_a_server_does_not_name_its_own_address(server: Callable[..., Server], postgres: Postgres) -> None:
    # A server was killed as the active one and is started again at the same address.
    first = server("first")
    await first.start()
    second = server("second", advertised="there:77")
    postgres.execute("UPDATE server_leader SET address = 'there:77'", first.url)
    await second.start()
    refused = str(await second.call())
    assert refused.startswith("no server is active: there:77, the address of the last one, is this server's own")
    address = f"127.0.0.1:{first.listener.port}"
    postgres.execute(f"UPDATE server_leader SET address = '{address}'", first.url)
    while not str(await second.call()).startswith(second.waits_for(first)):
        """It looks again in a moment."""


async def test_who_was_superseded_closes_and_ends_with_the_reason(
    server: Callable[..., Server], postgres: Postgres
) -> None:  # S24
    one = server("one")
    await one.start()
    (active,) = one.opened
    lost = asyncio.ensure_future(one.replica.wait_until_lost())
    postgres.execute("UPDATE server_leader SET generation = generation + 1, address = '127.0.0.1:1'", one.url)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another server took over"):
        await asyncio.wait_for(lost, WAIT_S)
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


async def test_a_waiting_server_without_a_database_still_names_the_active_one(
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
            assert str(await second.call()).startswith(second.waits_for(first))
            network.mend()
            await until(lambda: second.replica.database_reachable)
        assert "the database cannot be used" in [each["event"] for each in log if each["log_level"] == "warning"]
        assert str(await second.call()).startswith(second.waits_for(first))


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
            raise DataDirInUseError("the folder is held by process 7")

    one.before_opening = folder
    with capture_logs() as log:
        await one.start()
        assert one.replica.waits_for_data_folder
        assert one.opened == []
        assert await one.health() == "NOT_SERVING"
        told = "no server is active: this server is taking over, but the folder is held by process 7, which ends"
        assert str(await one.call()).startswith(told)
        until_when = postgres.execute("SELECT valid_until FROM server_leader", one.url)
        await until(lambda: postgres.execute("SELECT valid_until FROM server_leader", one.url) > until_when)
        assert one.replica.is_active
        assert one.replica.waits_for_data_folder
        assert await one.health() == "NOT_SERVING"
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
        assert str(await waiting.call()).startswith(waiting.waits_for(first))
    else:
        with refused(ErrorCode.INVALID_REQUEST, "was used with the SQLite file"):
            await waiting.start()


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
        assert str(await waiting.call()).startswith(waiting.waits_for(first))


async def test_a_server_waits_beside_a_database_that_is_not_migrated(
    server: Callable[..., Server], postgres_url: str
) -> None:  # S3
    leading, migrating = server("leading"), asyncio.Event()
    leading.before_opening = migrating.wait  # type: ignore[assignment]
    starting = asyncio.ensure_future(leading.start())
    await until(lambda: hasattr(leading, "replica") and leading.replica.is_active)
    waiting = server("waiting", identity=SimpleNamespace(storage_id="any", location="/mine"))
    await waiting.start()
    migrating.set()
    await starting
    assert str(await waiting.call()).startswith(waiting.waits_for(leading))


async def _serve_or_not(serving: bool) -> None:
    """Tell nobody whether the server serves."""


def not_started(
    folder: Path, url: str, set_serving: Callable[[bool], Awaitable[None]] = _serve_or_not, **options: Any
) -> FailoverReplica:
    """Make a server that has not begun to wait, so that a test decides what it sees."""
    return FailoverReplica(
        load_settings(data_dir=folder, port=0, leader_lease=LEASE_MS, **options),
        url,
        backend=SimpleNamespace(identity=lambda: None),  # type: ignore[arg-type]
        listener=SimpleNamespace(port=1234, set_serving=set_serving),  # type: ignore[arg-type]
        open_active=None,  # type: ignore[arg-type]
        monotonic=time.monotonic,
        end_process=None,
    )


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
    replica = not_started(tmp_path, postgres_url, host=host, advertised_address=advertised, allow_insecure=True)
    assert replica._address == expected.format(host=socket.gethostname(), port=1234)
    assert replica._succession._address == replica._address, "it looks more often while the leader has this address"
    await replica.close()


async def test_each_try_to_renew_tells_whether_the_database_can_be_reached(tmp_path: Path, postgres_url: str) -> None:
    said: list[bool] = []

    async def set_serving(serving: bool) -> None:
        said.append(serving)

    replica = not_started(tmp_path, postgres_url, set_serving)
    for problem in (FlussTieringError(ErrorCode.UNAVAILABLE, "away"), None):
        await replica._tried_to_renew(problem)
        assert replica.database_reachable is (problem is None)
    assert said == [], "it does not serve yet"
    # Nobody leads, but this server could not take over either. It looks again.
    await replica._follow(None, None)
    assert replica.database_reachable
    assert not replica.is_active
    await replica.close()


async def test_a_waiting_server_logs_each_server_once_that_it_waits_for(tmp_path: Path, postgres_url: str) -> None:
    replica = not_started(tmp_path, postgres_url)
    one, same, later = Leader(1, "one", "one:1"), Leader(1, "one", "one:1"), Leader(2, "later", "later:2")
    with capture_logs() as log:
        for leader in (one, same, later):
            await replica._follow(leader, None)
    told = [each for each in log if each["event"] == "waiting for the active server to end"]
    assert [(each["active"], each["generation"]) for each in told] == [("one:1", 1), ("later:2", 2)]
    await replica.close()
