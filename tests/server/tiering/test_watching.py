"""Watching statuses as they change, over gRPC and within: S13, S16."""

from __future__ import annotations

import pytest
from manager_support import Managers

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import StatusChanges
from fluss_tiering.server.core.tiering.broadcaster import MAX_WATCHERS, StatusWatcher


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
        assert (ended.value.code, ended.value.message) == (end.code, end.message)
    assert len(managers.tiering.broadcaster) == 0
