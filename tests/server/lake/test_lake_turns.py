"""Commits of tables with many buckets: the control thread records them without looking at each bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from manager_support import Managers, Turns

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import BucketInfo, TableBucket, TableInfo
from fluss_tiering.server.backends.embedded.lake import OwnLakeSnapshots
from fluss_tiering.server.core.lake.merging import CommitRegistration

COUNT = 3_000
PRESENT = [BucketInfo(TableBucket(1, bucket), 0, 100, 800) for bucket in range(COUNT)]
FILE = "/offsets"


class Threads:
    """Takes the place of the server's threads, and counts how often a turn looks at a bucket.

    Attributes:
        turns: The turns of the control thread.
        between: Called after each step outside of the control thread, with the name of the step.
        looked: The most buckets that one turn looked at.
    """

    def __init__(self, managers: Managers, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns = Turns(managers)
        self.between: Callable[[str], Awaitable[object]] | None = None
        self.looked = 0
        self._looks = 0
        hash_of = TableBucket.__hash__

        def counting(bucket: TableBucket) -> int:
            self._looks += 1
            return hash_of(bucket)

        monkeypatch.setattr(TableBucket, "__hash__", counting)

    async def control(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._looks = 0
        result = await self.turns(function, *arguments, **options)
        self.looked = max(self.looked, self._looks)
        return result

    async def storage(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if self.between is not None:
            await self.between(function.__name__)
        return result


class Server:
    """The lake snapshots of a table with many buckets, whose round runs."""

    def __init__(self, managers: Managers, monkeypatch: pytest.MonkeyPatch) -> None:
        self.managers = managers
        self.table: TableInfo = managers.add_table(1, num_buckets=COUNT, primary_key=False)
        self.written: list[Mapping[TableBucket, int]] = []
        # What a server that starts loads: the round goes on.
        self.claim = managers.claim(self.table)
        self.loaded = managers.loaded_as_by_a_server()
        self.threads = Threads(managers, monkeypatch)
        storage: Any = SimpleNamespace(
            buckets=lambda _: PRESENT,
            has_lake_offsets=lambda _, path: path == FILE,
            write_lake_offsets=lambda _, offsets: self.written.append(offsets) or FILE,
            delete_lake_offsets=lambda *_: None,
        )
        threads: Any = self.threads
        self.lake = OwnLakeSnapshots(threads, storage, self.loaded)

    def commit(self, snapshot_id: int, offsets: Mapping[TableBucket, int], path: str = FILE) -> Awaitable[None]:
        return self.lake.commit(
            CommitRegistration(self.table, self.claim.tiering_epoch, snapshot_id, offsets, f"c{snapshot_id}", path)
        )

    def known(self, snapshot_id: int | None = None) -> LakeSnapshot | None:
        if snapshot_id is None:
            return asyncio.run(self.lake.newest(self.table))
        return asyncio.run(self.lake.snapshot(self.table, snapshot_id))


@pytest.fixture
def server(managers: Managers, monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(managers, monkeypatch)


def all_at(offset: int) -> dict[TableBucket, int]:
    return {each.bucket: offset for each in PRESENT}


def test_a_commit_of_many_buckets_is_a_turn_of_few_rows(server: Server) -> None:  # D5
    few = {TableBucket(1, 7): 30}
    asyncio.run(server.commit(1, all_at(10)))
    asyncio.run(server.commit(2, few))
    asyncio.run(server.commit(2, few))  # repeated
    for ignore_previous in (False, True):
        prepared = server.lake.prepare(
            server.table, server.claim.tiering_epoch, {TableBucket(1, 8): 40}, ignore_previous=ignore_previous
        )
        assert asyncio.run(prepared) == FILE
    assert server.known(1) == LakeSnapshot(1, 1, all_at(10))
    assert server.known(2) == server.known() == LakeSnapshot(1, 2, {**all_at(10), **few})
    assert server.written == [{**all_at(10), **few, TableBucket(1, 8): 40}, {**all_at(-1), TableBucket(1, 8): 40}]
    assert max(server.threads.turns.rows) <= 5
    assert server.threads.looked == 0
    server.managers.restart()
    assert server.managers.lake.newest(1) == server.known()


def test_a_refused_commit_of_many_buckets_is_noted_in_a_short_turn(server: Server) -> None:  # D5, S10
    asyncio.run(server.commit(1, all_at(10)))
    refusals = [
        (server.commit(2, all_at(9)), ErrorCode.INVALID_REQUEST, "before 10"),
        (server.commit(2, all_at(101)), ErrorCode.LOG_OFFSET_OUT_OF_RANGE, "past the log's end"),
        (server.commit(1, all_at(11)), ErrorCode.INVALID_REQUEST, "other offsets"),
        (server.commit(2, all_at(11), "/gone"), ErrorCode.INVALID_REQUEST, "does not exist"),
    ]
    for refusal, code, words in refusals:
        with pytest.raises(FlussTieringError, match=words) as refused:
            asyncio.run(refusal)  # type: ignore[arg-type]
        assert refused.value.code is code
        (status,) = server.loaded.tiering.statuses(server.table.path)
        assert words in str(status.last_error)
    assert server.known() == LakeSnapshot(1, 1, all_at(10))
    assert (max(server.threads.turns.rows) <= 5, server.threads.looked) == (True, 0)


def after_merging(server: Server, step: Callable[[], Awaitable[object]]) -> None:
    """Let something happen once, after a commit was merged and before it is recorded."""

    async def between(name: str) -> None:
        if name == "merge_commit":
            server.threads.between = None
            await step()

    server.threads.between = between


def test_commits_that_meet_are_merged_with_each_other(server: Server) -> None:  # L10
    first, second = {TableBucket(1, 0): 10}, {TableBucket(1, 1): 20}
    after_merging(server, lambda: server.commit(2, second))
    asyncio.run(server.commit(1, first))
    assert server.known(2) == LakeSnapshot(1, 2, second)
    assert server.known() == LakeSnapshot(1, 1, {**first, **second})


def test_the_same_commit_that_comes_twice_at_once_is_recorded_once(server: Server) -> None:
    offsets = {TableBucket(1, 0): 10}
    after_merging(server, lambda: server.commit(1, offsets))
    asyncio.run(server.commit(1, offsets))
    assert server.known() == LakeSnapshot(1, 1, offsets)
    assert len(server.loaded.lake.offsets_paths(1)) == 1


def test_a_round_that_ends_while_its_commit_is_merged_registers_nothing(server: Server) -> None:  # S5
    async def end() -> None:
        assert server.loaded.tiering.cancel("lease", None, "stopped by hand")

    after_merging(server, end)
    with pytest.raises(FlussTieringError, match="stopped by hand") as refused:
        asyncio.run(server.commit(1, {TableBucket(1, 0): 10}))  # type: ignore[arg-type]
    assert refused.value.code is ErrorCode.INVALID_TIERING_STATE
    assert server.known() is None
