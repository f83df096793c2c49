"""Clients that name the server that they expect, and clients and servers of different versions."""

from __future__ import annotations

import asyncio
import json

import pytest
from refusals import refused

from engine_support import SCHEMA, ServerThread, new_table
from fluss_tiering import __version__
from fluss_tiering.client import AsyncTieringClient, TieringClient
from fluss_tiering.client.target import Target
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.version import other_version
from fluss_tiering.wire.tables import path_to_pb


def refused_by(call) -> str:
    with pytest.raises(FlussTieringError) as refused:
        call()
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    return refused.value.message


def test_the_server_that_is_named_answers_every_kind_of_call(client, server) -> None:  # D30
    server_id = client.describe_storage().data_dir_id
    assert f"server_id={server_id}" in server.log_file.read_text()
    with TieringClient(f"{server_id}@{server.target}") as named:
        table = new_table(named, [1, 2])
        list(named.write_rows(table.path, WriteKind.UPSERT, [SCHEMA.empty_table().from_pylist([{"id": 3}], SCHEMA)]))
        assert len(next(named.watch_tiering_statuses([table.path])).statuses) == 1
        with named.scan(table.path) as scan:
            assert sorted(row["id"] for batch in scan for row in batch.to_pylist()) == [1, 2, 3]

    async def status() -> int:
        async with AsyncTieringClient(f"{server_id}@{server.target}") as named:
            return len(await named.list_tiering_statuses(table.path))

    assert asyncio.run(status()) == 1


def test_another_server_refuses_every_kind_of_call(client, server) -> None:  # D30
    table = new_table(client, [1])
    rows = [SCHEMA.empty_table().from_pylist([{"id": 3}], SCHEMA)]
    with TieringClient(f"0123-other@{server.target}") as stray:
        for call in (
            stray.list_tables,
            lambda: list(stray.write_rows(table.path, WriteKind.UPSERT, rows)),
            lambda: next(stray.watch_tiering_statuses()),
            lambda: list(stray.scan(table)),
        ):
            message = refused_by(call)
            assert "0123-other" in message
            assert client.describe_storage().data_dir_id in message

    async def status() -> None:
        async with AsyncTieringClient(f"0123-other@{server.target}") as stray:
            await stray.list_tiering_statuses()

    assert "0123-other" in refused_by(lambda: asyncio.run(status()))
    with client.scan(table) as scan:
        assert [row["id"] for batch in scan for row in batch.to_pylist()] == [1]


def test_a_server_that_takes_a_port_over_is_noticed(tmp_path) -> None:  # D30
    with ServerThread(tmp_path / "first") as first:
        server_id = json.loads((first.data_dir / "data-dir.json").read_text())["data_dir_id"]
        client = TieringClient(f"{server_id}@{first.target}", timeout=60)
        assert client.list_tables() == []
    # A client that finds its server again after a restart notices that it is another one.
    with ServerThread(tmp_path / "second", port=first.server.port), client:
        assert server_id in refused_by(client.list_tables)


def test_an_address_may_come_without_an_id() -> None:  # D30
    assert Target.parse("dns:///tiering:9133") == Target(("dns:///tiering:9133",), None)
    assert Target.parse("[::1]:9133") == Target(("[::1]:9133",), None)
    assert Target.parse("tiering:65535") == Target(("tiering:65535",), None)
    assert Target.parse("ab-12@tiering:9133") == Target(("tiering:9133",), "ab-12")
    assert Target.parse("id@one:1, two:2 ,three:3") == Target(("one:1", "two:2", "three:3"), "id")  # E38


def test_another_minor_version_is_told(client: TieringClient) -> None:  # D30
    assert client.describe_storage().server_version == __version__
    assert other_version(__version__) is None
    major, minor, _ = __version__.split(".")
    assert other_version(f"{major}.{minor}.99") is None
    assert other_version("") is None
    for other in (f"{major}.{int(minor) + 1}.0", f"{int(major) + 1}.{minor}.0"):
        assert other in (other_version(other) or "")


def test_a_table_can_be_named_by_text(client: TieringClient) -> None:  # D30
    assert path_to_pb("db.orders") == path_to_pb(TablePath("db", "orders"))  # type: ignore[arg-type]
    with refused(ErrorCode.TABLE_NOT_EXIST):
        client.scan("db.nowhere")
    with refused(ErrorCode.INVALID_TABLE, "'orders' is not a table path"):
        client.list_buckets(["orders"])  # type: ignore[list-item]
