"""Changes of tables that stop half-way: on the disk of the tables, but not in the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from engine_support import HOUR, OpenServer, descriptor, new_path, new_table
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from waiting import wait_until


class FillableServer(OpenServer):
    """A server whose disk can be full for its database."""

    @property
    def store(self) -> Any:
        return self.components.managers.tiering._store

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        self._set_writable(False)
        try:
            yield
        finally:
            self._set_writable(True)

    def _set_writable(self, writable: bool) -> None:
        def pragma() -> None:
            with self.store._database.engine.connect() as connection:
                connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writable else 'ON'}")

        self.run(self.components.threads.control(pragma))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FillableServer]:
    with FillableServer(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(server: FillableServer) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected


def code_of(call: Any) -> ErrorCode:
    with pytest.raises(FlussTieringError) as refused:
        call()
    return refused.value.code


def drop_half(server: FillableServer, client: TieringClient) -> TablePath:
    """Drops a table while the database's disk is full."""
    table = new_table(client, [1, 2], freshness="0s")
    lease_latest_snapshots(client, "lease", [table.path], HOUR)
    with server.full_disk():
        assert code_of(lambda: client.drop_table(table.path, drop_untiered=True)) is ErrorCode.STORAGE
        # What is dropped is neither listed nor given to anybody, although that could not be recorded.
        assert client.list_tiering_statuses() == []
        assert client.heartbeat(request_table=True, driver="driver").claim is None
        assert code_of(lambda: client.list_tiering_statuses(table.path)) is ErrorCode.TABLE_NOT_EXIST
        assert code_of(lambda: client.drop_table(table.path, drop_untiered=True)) is ErrorCode.STORAGE
    return table.path


def check_forgotten(server: FillableServer, client: TieringClient) -> None:
    assert client.list_leases() == []
    assert client.list_tiering_statuses() == []
    assert server.store.statuses() == []


@pytest.mark.parametrize("by_client", [True, False])
def test_a_drop_that_was_half_done_is_finished(server: FillableServer, client: TieringClient, by_client: bool) -> None:
    # D11
    path = drop_half(server, client)
    if by_client:
        client.drop_table(path)
    else:
        server.run(server.components.definitions.settle())
    assert code_of(lambda: client.drop_table(path)) is ErrorCode.TABLE_NOT_EXIST
    check_forgotten(server, client)


def test_a_drop_that_was_half_done_is_finished_by_a_restart(tmp_path: Path) -> None:  # D11
    with FillableServer(tmp_path / "data") as server, TieringClient(server.target) as client:
        drop_half(server, client)
        assert server.store.statuses()
    with FillableServer(tmp_path / "data") as server, TieringClient(server.target) as client:
        check_forgotten(server, client)


def test_a_table_of_the_same_name_may_be_made_before_the_drop_is_recorded(  # D11, D13
    server: FillableServer, client: TieringClient
) -> None:
    table = new_table(client, freshness="0s")
    with server.full_disk():
        assert code_of(lambda: client.drop_table(table.path, drop_untiered=True)) is ErrorCode.STORAGE
    again = client.create_table(table.path, descriptor(freshness="0s"))
    server.run(server.components.definitions.settle())
    (status,) = client.list_tiering_statuses()
    assert status.table_id == again.table_id
    assert [each.table_id for each in server.store.statuses()] == [again.table_id]


@pytest.mark.parametrize("step", ["create", "alter"])
def test_a_change_that_can_neither_be_recorded_nor_taken_back_is_settled_later(  # D11
    server: FillableServer, client: TieringClient, step: str
) -> None:
    path = new_path() if step == "create" else new_table(client, freshness="1h").path
    refusal = FlussTieringError(ErrorCode.STORAGE, "the disk does not answer")
    if step == "create":
        with server.full_disk(), mock.patch.object(EmbeddedStorage, "drop_table", side_effect=refusal):
            assert code_of(lambda: client.create_table(path, descriptor(freshness="0s"))) is ErrorCode.STORAGE
        assert client.list_tiering_statuses() == []
    else:
        change = EmbeddedStorage.alter_table
        steps = iter([change])

        def fail_second(storage: EmbeddedStorage, *arguments: Any) -> Any:
            for first in steps:
                return first(storage, *arguments)
            raise refusal

        with server.full_disk(), mock.patch.object(EmbeddedStorage, "alter_table", fail_second):
            altered = {"table.datalake.freshness": "0s"}
            assert code_of(lambda: client.alter_table(path, altered)) is ErrorCode.STORAGE
    server.run(server.components.definitions.settle())
    wait_until(lambda: [each.path for each in client.list_tiering_statuses()] == [path])
    (table,) = server.components.managers.tiering.tables.all()
    assert table.freshness_ms == 0
