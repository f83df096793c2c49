"""One of several servers, in this process and on a real PostgreSQL: how it ends what it serves, or is ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest
import sqlalchemy as sa
from replica_servers import LEASE_MS, SHORT_LEASE_MS, Active, Server, until, write

from fluss_tiering.model.closing import time_limit
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.server.core.store import database as database_module
from fluss_tiering.server.failover import leadership as leadership_module
from fluss_tiering.server.failover import replica as replica_module
from postgres_support import Postgres, socket_of, through
from tcp_proxy import TcpProxy
from waiting import WAIT_S


@pytest.mark.parametrize("lost", [True, False])
async def test_only_a_server_that_leads_no_longer_is_ended_if_it_cannot_close(
    server: Callable[..., Server], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:  # D1
    monkeypatch.setattr(replica_module, "_CLOSING_S", 0.05)
    limits: list[float] = []

    def noted(seconds: float, end: Callable[[], object]) -> AbstractContextManager[None]:
        limits.append(seconds)
        return time_limit(seconds, end)

    monkeypatch.setattr(replica_module, "time_limit", noted)
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
    if lost:
        assert set(limits) == {0.05}, "the time that its leadership would have had is over, too"
    else:
        assert all(0.05 < each <= LEASE_MS / 1000 + 0.05 for each in limits)


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


async def test_a_server_that_leads_no_longer_waits_for_no_answer_about_a_transaction(
    server: Callable[..., Server], postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the database or a time limit would end the wait, only later.
    monkeypatch.setattr(database_module, "_POSTGRESQL_SETTINGS", ("lock_timeout = 0",))
    monkeypatch.setattr(leadership_module, "_SETTLE_LIMIT_S", 2 * WAIT_S)
    monkeypatch.setattr(replica_module, "_CLOSING_S", 2 * WAIT_S)
    one = server("one")
    await one.start()

    def ask() -> None:
        with suppress(FlussTieringError):
            one.opened[0].fence.was_committed("7")

    asking = threading.Thread(target=ask, daemon=True)
    one.before_closing = lambda: asking.join(WAIT_S)
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    other = sa.create_engine(one.replica._database.engine.url, poolclass=sa.NullPool)
    with other.begin() as holding:
        holding.exec_driver_sql("UPDATE server_transaction SET token = 1")
        asking.start()
        await until(lambda: postgres.execute(waiting, one.url))
        postgres.execute("UPDATE server_leader SET generation = generation + 1", one.url)
        with pytest.raises(FlussTieringError):
            await one.replica.wait_until_lost()
        await one.replica.stop()
        assert not asking.is_alive()


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
