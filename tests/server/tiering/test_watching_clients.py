"""Watching statuses over gRPC: what clients see, and how a watcher ends (S13, S16)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_support import ServerProcess, ServerThread, new_path, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.client.aio import AsyncTieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, StatusChanges, TieringState
from metrics_support import watchers_of
from waiting import wait_until


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


def test_tables_that_cannot_be_watched_are_named(client: TieringClient) -> None:  # S16
    unknown, untiered = new_path(), new_table(client, tiered=False)
    with pytest.raises(FlussTieringError) as missing:
        next(client.watch_tiering_statuses([unknown]))
    assert missing.value.code is ErrorCode.TABLE_NOT_EXIST
    assert str(unknown) in missing.value.message
    with pytest.raises(FlussTieringError) as refused:
        next(client.watch_tiering_statuses([untiered.path]))
    assert refused.value.code is ErrorCode.INVALID_TIERING_STATE


async def test_an_asyncio_client_watches_too(server: ServerProcess) -> None:
    with TieringClient(server.target) as client:
        table = new_table(client)
        async with AsyncTieringClient(server.target) as watching:
            changes = watching.watch_tiering_statuses([table.path])
            assert seen(await anext(changes)) == {table.path.table: "Scheduled"}
            await asyncio.to_thread(client.claim_tables, [table.path], "X", None, "d")
            assert seen(await anext(changes)) == {table.path.table: "Tiering"}
            await changes.aclose()
            with pytest.raises(FlussTieringError) as missing:
                await anext(watching.watch_tiering_statuses([new_path()]))
            assert missing.value.code is ErrorCode.TABLE_NOT_EXIST


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
        with pytest.raises(FlussTieringError) as silent:
            next(changes)
        assert silent.value.code is ErrorCode.UNAVAILABLE
    wait_until(lambda: watchers_of(own_server.server.metrics_port) == 0)


def test_a_watcher_that_goes_away_is_forgotten(own_server: ServerThread) -> None:
    with TieringClient(own_server.target) as client:
        changes = client.watch_tiering_statuses()
        next(changes)
        assert watchers_of(own_server.server.metrics_port) == 1
        changes.close()
        wait_until(lambda: watchers_of(own_server.server.metrics_port) == 0)


def test_a_server_that_stops_ends_its_watchers_at_once(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data", shutdown_grace=200_000) as running, TieringClient(running.target) as client:
        changes = client.watch_tiering_statuses()
        next(changes)
        started = time.monotonic()
        running.run(running.server.stop())
        assert time.monotonic() - started < 60, "it waited for its watchers"
        with pytest.raises(FlussTieringError) as ended:
            next(changes)
        assert ended.value.code is ErrorCode.UNAVAILABLE
        assert "stopping" in ended.value.message


def test_statuses_that_no_message_holds_are_asked_for_by_name(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data", max_message_bytes=250) as running, TieringClient(running.target) as client:
        *_, last = [new_table(client) for _ in range(15)]
        for ask in (client.list_tiering_statuses, lambda: next(iter(client.watch_tiering_statuses()))):
            with pytest.raises(FlussTieringError, match=r"too large .* one table by its name") as refused:
                ask()
            assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert [status.path for status in client.list_tiering_statuses(last.path)] == [last.path]
