"""The background jobs of the embedded storage, and what is left of its lake snapshots on the disk."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from manager_support import BACKOFF_BASE, BACKOFF_CAP, HEARTBEAT_TIMEOUT, Managers

from engine_support import HOUR, ServerThread, VirtualClock, descriptor, new_path, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableBucket, WriteKind
from fluss_tiering.model.tiering import Claim
from fluss_tiering.server.backends.embedded.jobs import TableOpening, collect_kv_snapshots
from fluss_tiering.server.backends.embedded.leases import OwnLeases
from fluss_tiering.server.core import gc_tuning
from fluss_tiering.server.core.lake import manager
from fluss_tiering.server.core.lake.backlogs import Backlogs
from fluss_tiering.server.core.leases.book import PinnedSnapshots
from fluss_tiering.server.core.managers import Managers as ServerManagers
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.core.tiering.policy import TieringPolicy
from fluss_tiering.server.core.tiering.states import FailureBackoff
from fluss_tiering.storage.embedded import kv_snapshots
from fluss_tiering.storage.embedded.storage import EmbeddedStorage


class Circle:
    """An object that only a garbage collection frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def storage(tmp_path: Path, clock: VirtualClock) -> Iterator[EmbeddedStorage]:
    opened = EmbeddedStorage.open(tmp_path / "data", clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def threads() -> Iterator[ServerThreads]:
    running = ServerThreads()
    yield running
    running.close()
    gc_tuning.release_all()


def garbage(count: int) -> list[weakref.ref[Circle]]:
    return [weakref.ref(Circle()) for _ in range(count)]


@pytest.mark.slow
def test_only_the_first_look_at_the_tables_keeps_objects_out_of_garbage_collections(  # D10
    storage: EmbeddedStorage, threads: ServerThreads, clock: VirtualClock
) -> None:
    for _ in range(25):
        storage.create_table(new_path(), descriptor())
    opening = TableOpening(threads, storage, Backlogs(clock, lambda _: None))
    before = garbage(100)
    asyncio.run(opening.run_once())
    assert not [each for each in before if each() is not None], "what was garbage was kept for ever"
    kept = gc.get_freeze_count()
    assert kept > 0
    later = []
    for _ in range(5):
        later += garbage(100)
        asyncio.run(opening.run_once())
        assert gc.get_freeze_count() <= kept
    gc.collect()
    assert not [each for each in later if each() is not None]


def test_what_was_garbage_at_the_end_of_loading_is_not_kept() -> None:  # D10
    try:
        with gc_tuning.loading():
            made = garbage(100)
        assert not [each for each in made if each() is not None]
    finally:
        gc_tuning.release_all()


@pytest.fixture
def loaded(managers: Managers, storage: EmbeddedStorage, clock: VirtualClock) -> ServerManagers:
    policy = TieringPolicy(HEARTBEAT_TIMEOUT, FailureBackoff(BACKOFF_BASE, BACKOFF_CAP, random.Random(7)), 5)
    return ServerManagers(storage, managers.store, clock, policy)


def snapshots_of(storage: EmbeddedStorage, times: int, num_buckets: int = 1) -> Mapping[TableBucket, int]:
    """Make a table and this many KV snapshots of each bucket. Return the newest of each."""
    table = storage.create_table(new_path(), descriptor(num_buckets=num_buckets))
    for number in range(times):
        rows = pa.table({"id": pa.array(range(64), pa.int32()), "name": [f"{number}"] * 64})
        storage.write(table.path, WriteKind.UPSERT, rows)
        taken = storage.take_kv_snapshots(table.path)
    assert len(taken) == num_buckets
    return {each.bucket: each.snapshot_id for each in taken}


def test_a_snapshot_that_cannot_be_deleted_keeps_no_other(
    storage: EmbeddedStorage,
    loaded: ServerManagers,
    threads: ServerThreads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = [snapshots_of(storage, 3, num_buckets=2), snapshots_of(storage, 3)]
    delete_folder = kv_snapshots.delete_folder
    first = next(iter(tables[0]))
    doomed = storage.kv_snapshot(first, 0)
    assert doomed is not None

    def refusing(folder: Path) -> None:
        if str(folder).endswith(doomed.path):
            raise OSError(errno.EACCES, "Permission denied")
        delete_folder(folder)

    with monkeypatch.context() as patch:
        patch.setattr(kv_snapshots, "delete_folder", refusing)
        asyncio.run(collect_kv_snapshots(threads, storage, loaded))
    left = {
        (bucket, snapshot_id)
        for table in tables
        for bucket in table
        for snapshot_id in range(3)
        if storage.kv_snapshot(bucket, snapshot_id) is not None
    }
    newest = {(bucket, 2) for table in tables for bucket in table}
    assert left == newest | {(first, 0)}
    assert asyncio.run(collect_kv_snapshots(threads, storage, loaded)) == 1


async def test_a_client_that_goes_away_leaves_no_snapshot_held(
    storage: EmbeddedStorage,
    loaded: ServerManagers,
    threads: ServerThreads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newest = snapshots_of(storage, 1)
    begun, may_end = threading.Event(), threading.Event()
    hold = PinnedSnapshots.hold

    def slowly(pins: PinnedSnapshots, snapshots: Mapping[TableBucket, int]) -> Any:
        held = hold(pins, snapshots)
        begun.set()
        may_end.wait(10)
        return held

    monkeypatch.setattr(PinnedSnapshots, "hold", slowly)
    leases = OwnLeases(threads, storage, loaded)
    acquiring = asyncio.ensure_future(leases.acquire("X", HOUR, newest, allow_empty=False))
    assert await asyncio.to_thread(begun.wait, 10)
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    may_end.set()
    async with asyncio.timeout(10):
        while not await threads.control(loaded.claim_for_collection, list(newest.items())):
            await leases.drop("X", None)


HOUR_S = 3600


def test_offsets_files_go_once_nobody_needs_them(tmp_path: Path, monkeypatch) -> None:  # D15
    monkeypatch.setattr(manager, "_KEPT_SNAPSHOTS", 2)
    with ServerThread(tmp_path / "data") as server, TieringClient(server.target) as client:
        table, other = (new_table(client, [1, 2], primary_key=False) for _ in range(2))
        offsets = {TableBucket(table.table_id, 0): 2}
        (claim,) = client.claim_tables([table.path], "lease", None, "driver")
        assert isinstance(claim, Claim)

        def prepare(hours_ago: int) -> str:
            path = client.prepare_lake_snapshot(table, claim.tiering_epoch, offsets)
            then = Path(path).stat().st_mtime - hours_ago * HOUR_S
            os.utime(path, (then, then))
            return path

        def commit(snapshot_id: int, path: str) -> None:
            client.commit_lake_snapshot(table, claim.tiering_epoch, snapshot_id, offsets, path, f"commit {snapshot_id}")

        (of_other,) = client.claim_tables([other.path], "lease", None, "driver")
        assert isinstance(of_other, Claim)
        others = client.prepare_lake_snapshot(other, of_other.tiering_epoch, {TableBucket(other.table_id, 0): 2})
        os.utime(others, (0, 0))
        registered = [prepare(hours_ago=100 - number) for number in range(4)]
        failed_long_ago, may_still_commit = prepare(hours_ago=90), prepare(hours_ago=20)
        for snapshot_id, path in enumerate(registered):
            commit(snapshot_id, path)
        # All of them are within a day of the newest, which was written 97 hours ago.
        assert all(Path(path).exists() for path in [*registered, failed_long_ago, may_still_commit])
        newest = prepare(hours_ago=0)
        commit(4, newest)
        left = {
            path for path in [*registered, failed_long_ago, may_still_commit, newest, others] if Path(path).exists()
        }
        assert left == {registered[-1], may_still_commit, newest, others}
        # What is known with its offsets can be registered again, and what may still commit can.
        commit(4, newest)
        commit(5, may_still_commit)
