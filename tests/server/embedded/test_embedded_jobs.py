"""The background jobs of the embedded storage."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_support import VirtualClock, descriptor, new_path
from fluss_tiering.server import gc_tuning
from fluss_tiering.server.embedded.jobs import TableOpening
from fluss_tiering.server.lake.backlogs import Backlogs
from fluss_tiering.server.threads import ServerThreads
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
