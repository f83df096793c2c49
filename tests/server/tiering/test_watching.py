"""Watching statuses as they change, within the server and over gRPC, and how a watcher ends: S13, S16, S28."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_support import Managers

from engine_support import ServerProcess, ServerThread, new_path, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.client.aio import AsyncTieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, StatusChanges, TieringState
from fluss_tiering.server.core.tiering.broadcaster import MAX_WATCHERS, StatusWatcher
from metrics_support import watchers_of
from waiting import wait_until


def watcher(managers: Managers, *names: str, wake: object = lambda: None) -> StatusWatcher:
    paths = [table.path for table in managers.tables.values() if table.path.table in names]
    made = StatusWatcher(paths, wake)
    managers.tiering.watch(made, paths)
    return made


def seen(changes: StatusChanges) -> dict[str, str]:
    return {status.path.table: status.state.value for status in changes.statuses}


def test_first_all_then_what_changed(managers: Managers) -> None:
    one, _ = managers.add_table(1), managers.add_table(2)
    watching = watcher(managers)
    assert seen(watching.take()) == {"t1": "Scheduled", "t2": "Scheduled"}
    assert watching.take() == StatusChanges()
    managers.claim(one)
    assert seen(watching.take()) == {"t1": "Tiering"}
    managers.add_table(3, freshness="0s")
    managers.drop_table(2)
    changes = watching.take()
    assert (seen(changes), [path.table for path in changes.removed]) == ({"t3": "Pending"}, ["t2"])


def test_a_slow_watcher_gets_the_newest_of_each_table(managers: Managers) -> None:
    table, other = managers.add_table(1, freshness="0s"), managers.add_table(2)
    wakes: list[int] = []
    watching = watcher(managers, wake=lambda: wakes.append(1))
    watching.take()
    wakes.clear()
    for _ in range(20):
        managers.finish(managers.claim(table))
    assert len(wakes) == 1, "woken once for all that it has not taken"
    assert len(watching._news) == 1, "bounded by the number of tables"
    (status,) = watching.take().statuses
    assert status == managers.status(table)
    managers.drop_table(2)
    again = managers.add_table(3, name=other.path.table, freshness="0s")
    assert watching.take() == StatusChanges(statuses=(managers.status(again),)), "a table of the same name took over"


def test_a_heartbeat_alone_is_no_news(managers: Managers) -> None:
    claim = managers.claim(managers.add_table(1))
    watching = watcher(managers)
    watching.take()
    managers.beat(claim)
    assert watching.take() == StatusChanges()


def test_only_what_is_watched(managers: Managers) -> None:
    one, two = managers.add_table(1), managers.add_table(2)
    watching = watcher(managers, "t1")
    assert seen(watching.take()) == {"t1": "Scheduled"}
    managers.claim(two)
    assert watching.take() == StatusChanges()
    managers.claim(one)
    assert seen(watching.take()) == {"t1": "Tiering"}


def test_what_was_not_persisted_is_not_told(managers: Managers) -> None:  # S24
    table = managers.add_table(1)
    watching = watcher(managers)
    watching.take()
    with managers.failing_disk(), pytest.raises(FlussTieringError):
        managers.claim(table)
    assert watching.take() == StatusChanges()


def test_switching_tiering_off_is_told(managers: Managers) -> None:  # S20
    table = managers.add_table(1)
    watching = watcher(managers)
    watching.take()
    managers.alter_table(table, {"table.datalake.enabled": "false"})
    assert watching.take().removed == (table.path,)


def test_there_may_be_so_many_watchers(managers: Managers) -> None:
    watching = [watcher(managers) for _ in range(MAX_WATCHERS)]
    with pytest.raises(FlussTieringError) as refused:
        watcher(managers)
    assert refused.value.code is ErrorCode.UNAVAILABLE
    assert str(MAX_WATCHERS) in refused.value.message
    managers.tiering.broadcaster.discard(watching[0])
    watcher(managers)


def test_a_watcher_that_left_before_it_was_added_is_not_added(managers: Managers) -> None:
    # A client may go away while the control thread is about to add its watcher.
    table = managers.add_table(1)
    left = StatusWatcher([table.path], lambda: None)
    managers.tiering.broadcaster.discard(left)
    managers.tiering.watch(left, [table.path])
    assert len(managers.tiering.broadcaster) == 0


def test_the_end_is_told_to_all_and_to_those_who_come_later(managers: Managers) -> None:  # S28
    watching = watcher(managers)
    end = FlussTieringError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another server took over")
    managers.tiering.broadcaster.end(end)
    for late in (watching.take, lambda: watcher(managers)):
        with pytest.raises(FlussTieringError) as ended:
            late()
        assert ended.value.code is end.code
    assert len(managers.tiering.broadcaster) == 0


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
