"""What an index finds, compared with a plain dictionary, how much it reads, and how much memory it takes."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from key_index_support import PLACE, TABLE, assert_finds, entries_of, found_rows, hashes_of, random_hashes

from fluss_tiering.lake.key_index import (
    Entries,
    Hashes,
    IndexStore,
    KeyIndex,
    Place,
    Run,
    RunWriter,
    UnusableIndexError,
    live_runs,
    merge_runs,
    runs_to_merge,
    write_run,
)
from fluss_tiering.lake.key_index.run import BLOCK_ENTRIES, PAGE_FENCES, PAGE_TYPE
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

TOP = 2**64 - 1
# Halves that are equal, neighbours, and equal in the bits that fences have.
HALVES = st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, TOP - 2**32, TOP - 1, TOP]) | st.integers(0, TOP)
KEYS = st.tuples(HALVES, st.sampled_from([0, 1, TOP]))


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    return IndexStore(str(tmp_path))


@st.composite
def data_files(draw: st.DrawFn, number: int) -> dict[str, list[tuple[int, int]]]:
    """Return data files of one run. Many rows have the same few keys, so that a key's entries fill blocks."""
    files = {}
    for name in range(draw(st.integers(0, 3))):
        keys = draw(st.lists(KEYS, max_size=10))
        repeated = draw(st.lists(st.sampled_from(keys), max_size=3 * BLOCK_ENTRIES)) if keys else []
        files[f"s3://lake/{number}/ä-{name}.parquet"] = keys + repeated
    return files


@given(data=st.data())
@settings(deadline=None, max_examples=150)
@pytest.mark.slow
def test_an_index_finds_what_a_dictionary_has(data: st.DataObject):
    with tempfile.TemporaryDirectory() as folder:
        store = IndexStore(folder)
        files: dict[str, list[tuple[int, int]]] = {}
        live: set[str] = set()
        runs = []
        for number in range(data.draw(st.integers(1, 6), "steps")):
            match data.draw(st.sampled_from(["write", "stream", "merge", "remove"]), "step"):
                case "write" | "stream" as how:
                    added = data.draw(data_files(number), "files")
                    runs.append(write_run(store, PLACE, entries_of(added)) if how == "write" else stream(store, added))
                    files |= added
                    live |= set(added)
                case "merge" if runs:
                    chosen = data.draw(st.lists(st.sampled_from(runs), unique_by=id), "merged")
                    runs = [merge_runs(store, PLACE, chosen, live), *(run for run in runs if run not in chosen)]
                case "remove" if live:
                    live -= set(data.draw(st.lists(st.sampled_from(sorted(live))), "removed"))
            index = KeyIndex(store, PLACE, runs)
            known = [key for rows in files.values() for key in rows]
            asked = data.draw(st.lists(KEYS | st.sampled_from(known) if known else KEYS), "asked")
            assert_finds(index, files, live, asked)
            assert index.unknown_files({*live, "new"}) == ["new"]
            runs = live_runs(runs, live)
            assert_finds(KeyIndex(store, PLACE, runs), files, live, asked)
        everything = {key for rows in files.values() for key in rows}
        assert_finds(KeyIndex(store, PLACE, runs), files, live, sorted(everything))


def stream(store: IndexStore, files: dict[str, list[tuple[int, int]]]):
    with RunWriter(store, PLACE, buffer_bytes=40 * 32) as writer:
        for path, keys in files.items():
            half = len(keys) // 2
            writer.add(path, hashes_of(keys[half:]), np.arange(half, len(keys)))
            writer.add(path, hashes_of(keys[:half]), np.arange(half))
        return writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("same_bits", [0, 20, 64])
def test_large_runs_find_each_key(store: IndexStore, same_bits: int):
    """A run of several fence pages, also if its hashes differ little in the bits that fences have."""
    count = 2 * BLOCK_ENTRIES * PAGE_FENCES + 100
    random = random_hashes(count)
    high = random.high >> np.uint64(same_bits) if same_bits < 64 else np.zeros(count, np.uint64)
    hashes = Hashes(high, random.low)
    run = write_run(store, PLACE, Entries.of_file("file", hashes))
    assert run.entries == count
    index = KeyIndex(store, PLACE, [run])
    asked = np.random.default_rng(2).permutation(count)[: 40_000 if same_bits < 64 else 10]
    matches = index.find(hashes.take(asked), {"file"})
    assert matches.positions.tolist() == sorted(asked.tolist())
    assert (asked[matches.queries] == matches.positions).all()
    assert not len(index.find(random_hashes(1000, seed=3), {"file"}))


@pytest.mark.parametrize(
    ("files", "largest", "entry_bytes"),
    [
        (1, 0, 16 + 1 + 4),
        (256, 2**32 - 1, 16 + 1 + 4),
        (257, 2**32, 16 + 2 + 8),
        (65_536, 2**40, 16 + 2 + 8),
        (65_537, 7, 16 + 4 + 4),
    ],
)
def test_numbers_are_as_narrow_as_they_may_be(store: IndexStore, files: int, largest: int, entry_bytes: int):
    numbers, positions = np.array([0, files - 1], np.int64), np.array([largest, 0])
    paths = tuple(f"file {number}" for number in range(files))
    run = write_run(store, PLACE, Entries(hashes_of([(1, 1), (2, 2)]), numbers, positions, paths))
    assert run.block_type.itemsize == BLOCK_ENTRIES * entry_bytes + 8
    matches = KeyIndex(store, PLACE, [run]).find(hashes_of([(2, 2), (1, 1)]), set(paths))
    assert found_rows(matches, 2) == [[(paths[-1], 0)], [(paths[0], largest)]]


def test_a_run_made_in_parts_is_like_one_made_at_once(store: IndexStore):
    """The parts are so large that a merge reads each of them in several steps."""
    count, part = 30_000, 700
    hashes = random_hashes(count)
    with RunWriter(store, PLACE, buffer_bytes=2_000 * 32) as writer:
        for start in range(0, count, part):
            end = min(count, start + part)
            writer.add("a", hashes.slice(start, end), np.arange(start, end))
        made_in_parts = writer.close()
    made_at_once = write_run(store, PLACE, Entries.of_file("a", hashes))
    merged = merge_runs(store, PLACE, [made_in_parts], {"a"})
    expected = made_at_once.read_blocks(store, np.arange(made_at_once.blocks))
    for run in (made_in_parts, merged):
        assert (run.entries, run.files, run.footer_start) == (count, {"a": count}, made_at_once.footer_start)
        blocks = run.read_blocks(store, np.arange(run.blocks))
        for field in ("high", "low", "file", "position"):
            assert np.array_equal(blocks[field], expected[field])


def test_matches_are_in_the_order_of_files_and_positions(store: IndexStore):
    keys = [(n, n) for n in (5, 3, 9, 1)]
    runs = [write_run(store, PLACE, entries_of({name: keys})) for name in ("b", "c", "a")]
    matches = KeyIndex(store, PLACE, runs).find(hashes_of(sorted(keys)), {"a", "b", "c"})
    assert matches.paths == ("a", "b", "c")
    assert matches.files.tolist() == sorted([0, 1, 2] * 4)
    assert matches.positions.tolist() == [0, 1, 2, 3] * 3
    assert matches.queries.tolist() == [2, 1, 3, 0] * 3


def test_a_file_of_two_runs_is_found_once(store: IndexStore):
    files = {"a": [(1, 1), (2, 2)], "b": [(1, 1)]}
    runs = [write_run(store, PLACE, entries_of(files)), write_run(store, PLACE, entries_of({"a": files["a"]}))]
    for order in (runs, runs[::-1]):
        assert_finds(KeyIndex(store, PLACE, order), files, {"a", "b"}, [(1, 1), (2, 2)])
        merged = merge_runs(store, PLACE, order, {"a", "b"})
        assert (merged.entries, merged.files) == (3, {"a": 2, "b": 1})
        assert_finds(KeyIndex(store, PLACE, [merged]), files, {"a", "b"}, [(1, 1), (2, 2)])


def test_a_file_without_rows_is_known(store: IndexStore):
    run = write_run(store, PLACE, entries_of({"empty": []}))
    index = KeyIndex(store, PLACE, [run])
    assert index.unknown_files({"empty", "other"}) == ["other"]
    assert not len(index.find(hashes_of([(1, 1)]), {"empty"}))
    with RunWriter(store, PLACE) as writer:
        writer.add("empty", Hashes.empty(), np.empty(0, np.int64))
        assert writer.close().files == {"empty": 0}


def test_an_index_without_runs_or_queries_finds_nothing(store: IndexStore):
    assert not len(KeyIndex(store, PLACE, []).find(hashes_of([(1, 1)]), {"a"}))
    run = write_run(store, PLACE, entries_of({"a": [(1, 1)]}))
    assert not len(KeyIndex(store, PLACE, [run]).find(Hashes.empty(), {"a"}))
    assert not len(KeyIndex(store, PLACE, [run]).find(hashes_of([(1, 1)]), set()))


def test_a_merge_drops_the_entries_of_dead_files(store: IndexStore):
    runs = [write_run(store, PLACE, entries_of({name: [(1, 1)] * 50, "x" + name: [(2, 2)] * 50})) for name in "ab"]
    merged = merge_runs(store, PLACE, runs, {"a", "xb"})
    assert (merged.entries, merged.files) == (100, {"a": 50, "xb": 50})
    assert merged.size < runs[0].size * 1.2


def test_places_do_not_meet(store: IndexStore):
    places = [PLACE, Place(TABLE, 4), Place(TABLE, 3, ("a",)), Place(TABLE, 3, ("a", "b")), Place(TABLE, 3, ("a,b",))]
    assert len({place.folder for place in places}) == len(places)
    run = write_run(store, PLACE, entries_of({"a": [(1, 1)]}))
    for place in (*places[1:], Place("00000000-0000-0000-0000-000000000001", 3)):
        with pytest.raises(UnusableIndexError, match="is a run of Place"):
            KeyIndex(store, place, [run])


@pytest.mark.parametrize(
    ("files", "positions", "said"),
    [
        ([0], [0, 1], "2 keys come with 1 file numbers and 2 positions"),
        ([0, 0], [0], "2 keys come with 2 file numbers and 1 positions"),
        ([0, 1], [0, 1], "a file number is not from 0 to 0"),
        ([0, -1], [0, 1], "a file number is not from 0 to 0"),
        ([0, 0], [0, -1], "a position is -1"),
    ],
)
def test_entries_that_do_not_fit_together_are_refused(store: IndexStore, files, positions, said: str):
    entries = Entries(hashes_of([(1, 1), (2, 2)]), np.array(files), np.array(positions), ("a",))
    with pytest.raises(FlussTieringError, match=said) as refused:
        write_run(store, PLACE, entries)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert not list(Path(store.location).rglob("run-*"))


def runs_of(*sizes: int) -> list[Run]:
    """Return runs that are not in any store, each with one data file of its name."""
    return [Run(f"{n}", PLACE, size, {f"{n}": size}, 0, np.empty(0, np.uint32)) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([5, 5, 5, 5], []),
        ([5, 5, 5, 5, 5], [0, 1, 2, 3, 4]),
        # Each is more than twice as large as all smaller ones together.
        ([1000, 243, 1, 3, 9, 27, 81], []),
        ([3000, 1000, 243, 1, 3, 9, 27, 81], []),
        # One too many, and so the two smallest.
        ([9000, 3000, 243, 1, 3, 9, 27, 81, 1000], [3, 4]),
        ([9000, 3000, 243, 1, 3, 9, 27, 81, 1000, 40_000], [3, 4, 5]),
        # 26 is twice as large as 9, 3 and 1 together, and 27 is more.
        ([1000, 300, 1, 3, 9, 26, 100], [2, 3, 4, 5]),
        ([1000, 300, 1, 3, 9, 27, 100], []),
        ([1000, 243, 1, 3, 9, 27, 80], [2, 3, 4, 5, 6]),
    ],
)
def test_runs_of_about_one_size_are_merged(sizes: list[int], merged: list[int]):
    runs = runs_of(*sizes)
    chosen = runs_to_merge(runs, {run.name for run in runs})
    assert sorted(int(run.name) for run in chosen) == merged


def test_only_one_run_is_written_anew_at_a_time():
    runs = [Run(f"{n}", PLACE, 11, {f"{n}": 5, "dead": 6}, 0, np.empty(0, np.uint32)) for n in range(3)]
    assert len(runs_to_merge(runs, {"0", "1", "2"})) == 1
    half = Run("half", PLACE, 10, {"a": 5, "b": 5}, 0, np.empty(0, np.uint32))
    assert runs_to_merge([half], {"a"}) == []


def test_a_run_of_which_most_is_dead_is_written_anew(store: IndexStore):
    run = write_run(store, PLACE, entries_of({"a": [(1, 1)] * 51, "b": [(1, 1)] * 50}))
    assert runs_to_merge([run], {"a", "b"}) == []
    assert runs_to_merge([run], {"a"}) == []
    assert runs_to_merge([run], {"b"}) == [run]
    # It is left out as it is.
    assert runs_to_merge([run], set()) == []
    assert live_runs([run], set()) == []


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
