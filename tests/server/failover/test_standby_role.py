"""What a standby server answers to any call, and what clients do with that."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import grpc
import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.client.aio import AsyncTieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, NotActiveError
from fluss_tiering.model.table import TablePath
from fluss_tiering.server.edge.listener import RpcListener
from fluss_tiering.server.failover.standby import StandbyRole
from fluss_tiering.server.settings.server_settings import ServerSettings
from fluss_tiering.wire.errors import ACTIVE_SERVER_KEY, code_from_metadata
from waiting import wait_until

METHODS = [
    "/fluss_tiering.v1.LakeTiering/ListTieringRounds",
    "/fluss_tiering.v1.LakeTiering/WatchTieringStatuses",
    "/fluss_tiering.v1.Tables/WriteRows",
    "/fluss_tiering.v1.Tables/CreateTable",
]


class Waiting(ServerThread):
    """A server whose calls go to a standby role."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.role = StandbyRole()
        self.refused = 0
        handler = self.role.handler

        def counted(method: str) -> Any:
            self.refused += 1
            return handler(method)

        self.role.handler = counted  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        self._thread.start()
        self.listener = self.run(self._listening())
        self.run(self.listener.start())
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.run(self.listener.stop(0))
        self._end_thread()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.listener.port}"

    async def _listening(self) -> RpcListener:
        listener = RpcListener(ServerSettings(data_dir=self.data_dir, port=0))
        listener.serve(self.role)
        return listener


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    with Waiting(tmp_path / "waiting") as running:
        yield running


def answered(target: str, method: str) -> Any:
    with grpc.insecure_channel(target, [("grpc.enable_retries", 0)]) as channel, pytest.raises(grpc.RpcError) as error:
        list(channel.stream_stream(method)(iter([b""]), timeout=30))
    return error.value


@pytest.mark.system
def test_each_call_is_told_which_server_is_active(waiting: Waiting) -> None:  # S28
    for method in METHODS:
        waiting.role.follow("there:77", "")
        refused = answered(waiting.target, method)
        assert refused.code() is grpc.StatusCode.UNAVAILABLE, method
        assert code_from_metadata(refused.trailing_metadata()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert dict(refused.trailing_metadata())[ACTIVE_SERVER_KEY] == "there:77"
        assert refused.details().startswith("this server waits, and there:77 is the active one")
        waiting.role.doubt("the database is away")
        assert answered(waiting.target, method).details().startswith("this server waits, and there:77"), "as before"
        waiting.role.follow(None, "this server is about to take over")
        refused = answered(waiting.target, method)
        assert code_from_metadata(refused.trailing_metadata()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ACTIVE_SERVER_KEY not in dict(refused.trailing_metadata())
        assert refused.details() == "no server is active: this server is about to take over; try again in a moment"


@pytest.mark.system
def test_a_client_with_several_addresses_finds_the_active_server(tmp_path: Path, waiting: Waiting) -> None:  # S28
    waiting.role.follow("there:77", "")
    gone = "127.0.0.1:1"
    with ServerThread(tmp_path / "active") as active:
        addresses = f"{gone},{waiting.target},{active.target}"
        with TieringClient(addresses) as client:
            # Calls that may not be repeated are made again all the same: nothing was done of them.
            table = new_table(client, [1, 2])
            assert [each.path for each in client.list_tables()] == [table.path]
        # A stream is opened again by who reads it.
        with TieringClient(f"{waiting.target},{active.target}") as client:
            with pytest.raises(FlussTieringError) as refused:
                next(iter(client.watch_tiering_statuses()))
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert next(iter(client.watch_tiering_statuses())).statuses

        async def listed() -> list[str]:
            async with AsyncTieringClient(addresses) as client:
                first = await client.list_tiering_statuses()
                watch: AsyncIterator[Any] = client.watch_tiering_statuses()
                return [str(each.path) for each in (*first, *(await anext(watch)).statuses)]

        assert asyncio.run(listed()) == [str(table.path)] * 2
    with TieringClient(f"{gone},{waiting.target}", timeout=2) as client, pytest.raises(FlussTieringError) as refused:
        client.list_tables()
    assert "there:77 is the active one" in refused.value.message


@pytest.mark.system
def test_a_client_waits_while_one_of_its_servers_takes_over(tmp_path: Path, waiting: Waiting) -> None:  # S28
    waiting.role.follow(None, "this server is taking over")
    with (
        ServerThread(tmp_path / "active") as active,
        TieringClient(f"127.0.0.1:1,{waiting.target}") as client,
        ThreadPoolExecutor(1) as pool,
    ):
        made = pool.submit(new_table, client)
        wait_until(lambda: waiting.refused)
        waiting.listener.serve(active.server._listener._switch.role)  # type: ignore[union-attr]
        path = made.result(60).path
        assert [each.path for each in client.list_tables()] == [path]
    with TieringClient(f"127.0.0.1:1,{waiting.target}", timeout=2) as client:
        waiting.listener.serve(waiting.role)
        with pytest.raises(FlussTieringError) as refused:
            client.list_tables()
    assert "no server is active: this server is taking over" in refused.value.message, (
        "and not that none can be reached"
    )


@pytest.mark.system
def test_statuses_are_listed_by_forwarding(tmp_path: Path, waiting: Waiting) -> None:  # S28
    with ServerThread(tmp_path / "active") as active, TieringClient(active.target) as client:
        table = new_table(client, [1])
        waiting.role.follow(active.target, "")
        with TieringClient(waiting.target) as asking:
            assert [each.path for each in asking.list_tiering_statuses()] == [table.path]
            with pytest.raises(FlussTieringError) as refused:
                asking.list_tiering_statuses(TablePath("db", "unknown"))
            assert refused.value.code is ErrorCode.TABLE_NOT_EXIST
            # In no circle, not to a server that is gone, and not for a caller whom only a certificate names.
            waiting.role.follow(waiting.target, "")
            for role in (waiting.role, StandbyRole(asks=True)):
                waiting.listener.serve(role)
                role.follow(waiting.target if role is waiting.role else active.target, "")
                with pytest.raises(FlussTieringError) as refused:
                    asking.list_tiering_statuses()
                assert "is the active one" in refused.value.message
    waiting.listener.serve(waiting.role)
    waiting.role.follow("127.0.0.1:1", "")
    with TieringClient(waiting.target) as asking, pytest.raises(FlussTieringError) as refused:
        asking.list_tiering_statuses()
    assert "127.0.0.1:1 is the active one" in refused.value.message


def test_the_error_travels_between_processes() -> None:
    for error in (NotActiveError("there:77"), NotActiveError(None, "it starts")):
        same = pickle.loads(pickle.dumps(error))
        assert (type(same), same.code, same.message) == (
            NotActiveError,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            error.message,
        )
