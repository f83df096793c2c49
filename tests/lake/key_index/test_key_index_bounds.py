"""How much an index reads, and how much memory it takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from key_index_support import PLACE, random_hashes

from fluss_tiering.lake.key_index import Entries, IndexStore, KeyIndex, write_run
from fluss_tiering.lake.key_index.run import PAGE_TYPE

MIB = 1 << 20


def store_in(folder: Path) -> IndexStore:
    return IndexStore(str(folder))


@pytest.mark.slow
@pytest.mark.parametrize("count", [30_000, 300_000])
def test_a_lookup_reads_a_block_and_a_fence_page_for_each_key_at_most(tmp_path: Path, count: int):
    hashes = random_hashes(count)
    run = write_run(store_in(tmp_path), PLACE, Entries.of_file("file", hashes))
    for asked in (1, 10, 100, 1000):
        store = store_in(tmp_path)
        matches = KeyIndex(store, PLACE, [run]).find(hashes.take(np.arange(asked) * (count // asked)), {"file"})
        assert len(matches) == asked
        needed = asked * run.block_type.itemsize + min(asked, run.pages) * PAGE_TYPE.itemsize
        # What lies between two ranges is read with them if that takes less time.
        assert store.counts.bytes <= 2 * needed
        assert store.counts.requests <= 2 * asked
        missing = KeyIndex(store, PLACE, [run]).find(random_hashes(asked, seed=2), {"file"})
        assert not len(missing)
        assert store.counts.bytes <= 4 * needed


def test_no_more_is_read_than_the_run(tmp_path: Path):
    store = store_in(tmp_path)
    hashes = random_hashes(50_000)
    run = write_run(store, PLACE, Entries.of_file("file", hashes))
    assert len(KeyIndex(store, PLACE, [run]).find(hashes, {"file"})) == 50_000
    # Parts of some 16,000 keys meet in one block and in one fence page.
    assert store.counts.bytes <= run.size + 4 * (PAGE_TYPE.itemsize + run.block_type.itemsize)


def test_runs_without_live_files_are_not_read(tmp_path: Path):
    store = store_in(tmp_path)
    hashes = random_hashes(100)
    run = write_run(store, PLACE, Entries.of_file("file", hashes))
    assert not len(KeyIndex(store, PLACE, [run]).find(hashes, {"other"}))
    assert store.counts.requests == 0


def peak_of(work: Callable[[], object]) -> int:
    """Return how many bytes a piece of work had in memory at once, more than before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_looking_up_many_keys_takes_bounded_memory(tmp_path: Path):
    store = store_in(tmp_path)
    hashes = random_hashes(2_000_000)
    run = write_run(store, PLACE, Entries.of_file("file", hashes))
    asked = random_hashes(400_000, seed=9)
    # The sorted keys take 10 MB. All blocks would take 43 MB.
    assert peak_of(lambda: KeyIndex(store, PLACE, [run]).find(asked, {"file"})) < 36 * MIB
