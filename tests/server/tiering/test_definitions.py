"""Options that change, tables that are resumed, and statuses that are watched, over gRPC: S13, S16, S17, S19, S20."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from refusals import refused

from engine_support import MINUTE, ServerProcess, ServerThread, VirtualClock, claimed, new_path, new_table, status
from fluss_tiering.api.v1 import lake_tiering_pb2, lake_tiering_pb2_grpc
from fluss_tiering.client import TieringClient
from fluss_tiering.client.aio import AsyncTieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, StatusChanges, TieringState, TieringStats
from metrics_support import watchers_of
from waiting import wait_until

ENABLED, FRESHNESS = "table.datalake.enabled", "table.datalake.freshness"
LAYOUT = {"table.datalake.layout": "clean"}


def test_options_that_changed_outlive_a_restart(tmp_path: Path, clock: VirtualClock) -> None:  # S20, S24
    with ServerThread(tmp_path / "data", clock=clock) as running, TieringClient(running.target) as client:
        table = new_table(client, freshness="1h", num_buckets=2)
        altered = client.alter_table(table.path, {FRESHNESS: "10min", "team": "a"})
        assert altered.descriptor.properties == {ENABLED: "true", FRESHNESS: "10min", "team": "a", **LAYOUT}
        assert (altered.table_id, altered.descriptor.columns) == (table.table_id, table.descriptor.columns)
        client.alter_table(table.path, reset_properties=["team", "never-set"])
    with ServerThread(tmp_path / "data", clock=clock) as running, TieringClient(running.target) as client:
        (found,) = client.get_tables([table.path])
        assert found.descriptor.properties == {ENABLED: "true", FRESHNESS: "10min", **LAYOUT}
        clock.advance(10 * MINUTE)
        assert client.heartbeat(request_table=True, driver="d").claim is not None


def test_what_cannot_be_altered_changes_nothing(client: TieringClient) -> None:  # S20
    table = new_table(client)
    for options, resets, code in (
        ({}, [], ErrorCode.INVALID_REQUEST),
        ({"a": "b"}, ["a"], ErrorCode.INVALID_REQUEST),
        ({"": "b"}, [], ErrorCode.INVALID_REQUEST),
        ({FRESHNESS: "soon"}, [], ErrorCode.INVALID_TABLE),
        ({ENABLED: "perhaps", "team": "a"}, [], ErrorCode.INVALID_TABLE),
        ({"table.kv.format": "INDEXED"}, [], ErrorCode.INVALID_TABLE),
        ({"iceberg.write.target-file-size-bytes": "1"}, [], ErrorCode.INVALID_TABLE),
    ):
        with pytest.raises(FlussTieringError) as refused:
            client.alter_table(table.path, options, resets)
        assert refused.value.code is code, options
    with pytest.raises(FlussTieringError) as missing:
        client.alter_table(new_path(), {"a": "b"})
    assert missing.value.code is ErrorCode.TABLE_NOT_EXIST
    assert client.get_tables([table.path])[0].descriptor == table.descriptor


# S24, S20
def test_an_alteration_that_cannot_be_recorded_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise FlussTieringError(ErrorCode.STORAGE, "the disk is full")

    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        table = new_table(client)
        monkeypatch.setattr("fluss_tiering.server.core.tiering.manager.LakeTieringManager.alter", fail)
        with refused(ErrorCode.STORAGE):
            client.alter_table(table.path, {ENABLED: "false"})
        assert client.get_tables([table.path])[0].descriptor == table.descriptor
        assert status(client, table).state is TieringState.SCHEDULED


def test_our_messages_carry_the_seeds_fields(client: TieringClient, server: object) -> None:  # S17, S10, S11
    table = new_table(client)
    round_ = claimed(client, table)
    request = lake_tiering_pb2.LakeTieringHeartbeatRequest()
    entry = request.failed_tables.add(table_id=table.table_id, tiering_epoch=round_.tiering_epoch)
    entry.error_message = "executor lost"
    assert lake_tiering_pb2.PbHeartbeatReqForTable.DESCRIPTOR.fields_by_name["error_message"].number == 4
    with grpc.insecure_channel(server.target) as channel:
        stub = lake_tiering_pb2_grpc.LakeTieringStub(channel)
        stub.LakeTieringHeartbeat(request, timeout=10)
        asked = lake_tiering_pb2.ListTieringStatusesRequest()
        asked.table_path.database_name, asked.table_path.table_name = table.path.database, table.path.table
        (told,) = stub.ListTieringStatuses(asked, timeout=10).tiering_statuses
    numbers = {field.number: value for field, value in told.ListFields()}
    assert (numbers[2], numbers[3], numbers[5]) == ("Failed", 1, "executor lost")
    assert numbers[6] == told.last_error_time
    assert 4 not in numbers, "never tiered (S14)"
    fresh = claimed(client, table)
    stats = TieringStats(rows=5, bytes=50, files=1, lake_snapshot_id=9)
    client.heartbeat(finished=[HeartbeatEntry(table.table_id, fresh.tiering_epoch, stats=stats)])
    assert client.list_tiering_rounds(table.path)[0].stats == stats


def seen(changes: StatusChanges) -> dict[str, str]:
    return {status.path.table: status.state.value for status in changes.statuses}


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerThread]:
    """A server whose watchers can be counted."""
    with ServerThread(tmp_path / "data") as running:
        yield running


def test_a_client_watches_a_round(client: TieringClient) -> None:
    table, other = new_table(client), new_table(client)
    changes = client.watch_tiering_statuses([table.path])
    assert seen(next(changes)) == {table.path.table: "Scheduled"}
    client.claim_tables([other.path], "other", None, "d")
    (claim,) = client.claim_tables([table.path], "X", None, "d")
    assert isinstance(claim, Claim)
    (tiering,) = next(changes).statuses
    assert (tiering.path, tiering.state, tiering.tiering_epoch) == (table.path, TieringState.TIERING, 1)
    client.heartbeat(failed=[HeartbeatEntry(table.table_id, claim.tiering_epoch, "boom")])
    (failed,) = next(changes).statuses
    assert (failed.state, failed.last_error, failed.parked) == (TieringState.FAILED, "boom", False)
    client.drop_table(table.path)
    assert next(changes).removed == (table.path,)
    changes.close()


async def test_an_asyncio_client_watches_too(server: ServerProcess) -> None:
    with TieringClient(server.target) as client:
        table = new_table(client)
        async with AsyncTieringClient(server.target) as watching:
            changes = watching.watch_tiering_statuses([table.path])
            assert seen(await anext(changes)) == {table.path.table: "Scheduled"}
            await asyncio.to_thread(client.claim_tables, [table.path], "X", None, "d")
            assert seen(await anext(changes)) == {table.path.table: "Tiering"}
            await changes.aclose()
            with refused(ErrorCode.TABLE_NOT_EXIST):
                await anext(watching.watch_tiering_statuses([new_path()]))


@pytest.mark.slow
def test_an_idle_server_shows_that_it_lives(own_server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluss_tiering.server.services.lake_tiering._SIGN_OF_LIFE_S", 0.1)
    with TieringClient(own_server.target, timeout=0.5) as client:
        changes = client.watch_tiering_statuses()
        assert next(changes) == StatusChanges()
        later = threading.Timer(1.5, new_table, [client])
        later.start()
        assert len(next(changes).statuses) == 1, "the stream outlived three times the client's timeout"
        later.join()
        changes.close()


def test_a_silent_server_is_noticed(own_server: ServerThread) -> None:
    with TieringClient(own_server.target, timeout=0.5) as client:
        changes = client.watch_tiering_statuses()
        next(changes)
        with refused(ErrorCode.UNAVAILABLE):
            next(changes)
    wait_until(lambda: watchers_of(own_server.server.metrics_port) == 0)


def test_a_server_that_stops_ends_its_watchers_at_once(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data", shutdown_grace=200_000) as running, TieringClient(running.target) as client:
        changes = client.watch_tiering_statuses()
        next(changes)
        started = time.monotonic()
        running.run(running.server.stop())
        assert time.monotonic() - started < 60, "it waited for its watchers"
        with refused(ErrorCode.UNAVAILABLE, "stopping"):
            next(changes)


def test_statuses_that_no_message_holds_are_asked_for_by_name(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data", max_message_bytes=250) as running, TieringClient(running.target) as client:
        *_, last = [new_table(client) for _ in range(15)]
        for ask in (client.list_tiering_statuses, lambda: next(iter(client.watch_tiering_statuses()))):
            with pytest.raises(FlussTieringError, match=r"too large .* one table by its name") as refused:
                ask()
            assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert [status.path for status in client.list_tiering_statuses(last.path)] == [last.path]
