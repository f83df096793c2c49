"""Looks up where the rows of keys are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.lake.key_index.hashes import Hashes
from fluss_tiering.lake.key_index.kernels import same_hashes
from fluss_tiering.lake.key_index.place import Place, unusable
from fluss_tiering.lake.key_index.run import BLOCK_ENTRIES, PAGE_FENCES, Blocks, Run, UInt32s, fences_of
from fluss_tiering.lake.key_index.store import IndexStore

_QUERIES_AT_ONCE: Final = 1 << 14
"""How many keys are looked up in a run at once. Their blocks take some 11 MB."""
_PAIRS_AT_ONCE: Final = 1 << 14
_BLOCKS_AT_ONCE: Final = 1 << 13
"""How many blocks are compared at once if all of a run are. They take some 6 MB."""
_DENSE: Final = 2
"""If there is a key for each so many blocks of a run, all blocks are read, which is faster than to choose some."""
_POSITION_BITS: Final = 40
"""The number of a file, of which there are some thousands, has the other bits."""
_NOTHING: Final = np.empty((3, 0), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Rows that were found, in the order of their files and positions.

    Attributes:
        queries: For each match the index of the hash that it is for.
        files: For each match the index in `paths` of its data file.
        positions: For each match the position in the data file, counted from 0.
        paths: The locations of data files, sorted.
    """

    queries: Int64s
    files: Int64s
    positions: Int64s
    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.queries)


class KeyIndex:
    """The index of one place. It never changes: with other runs it is another index.

    Args:
        store: Where the runs are.
        runs: The runs, in any order. If two have the same data file, it is taken from the first of them.

    Raises:
        UnusableIndexError: if a run is of another place.
    """

    def __init__(self, store: IndexStore, place: Place, runs: Sequence[Run]) -> None:
        for run in runs:
            if run.place != place:
                raise unusable(store.full_name(run.name), f"is a run of {run.place}", f"a run of {place}")
        self._store = store
        self._runs = tuple(runs)
        self._owners: dict[str, Run] = {}
        for run in runs:
            for path in run.files:
                self._owners.setdefault(path, run)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs."""
        return self._runs

    def unknown_files(self, live: Collection[str]) -> list[str]:
        """Return the data files that no run has. Without them the index says nothing about their rows.

        Who uses the index reads the key columns of these files and adds a run with them.

        Args:
            live: The locations of the data files that are alive in the lake snapshot.
        """
        return [path for path in live if path not in self._owners]

    def find(self, hashes: Hashes, live: Collection[str]) -> Matches:
        """Return all rows of live data files whose keys have these hashes, also those that are deleted by position.

        It reads about 0.7 kB of each run for each hash, and 4 kB for each 32,768 entries among which a hash is. For
        many hashes it reads the whole run, which is at most 1.4 kB for each hash.

        Args:
            hashes: The hashes of keys. A hash that occurs twice has its matches twice.
            live: The locations of the data files that are alive in the lake snapshot. It should be a set.

        Raises:
            UnusableIndexError: if a file of the index is missing, damaged or cannot be read.
        """
        order = np.argsort(hashes.high)
        ordered = hashes.take(order)
        paths = tuple(sorted(path for path in self._owners if path in live))
        numbers = {path: number for number, path in enumerate(paths)}

        def found_in(run: Run) -> npt.NDArray[np.int64]:
            mapped = [numbers.get(path, -1) if self._owners[path] is run else -1 for path in run.files]
            parts = [_NOTHING]
            if run.entries and max(mapped) >= 0:
                find = _found_in_all if _DENSE * len(ordered) >= run.blocks else _found_in
                parts += find(self._store, run, ordered, np.array(mapped, np.int64))
            return np.concatenate(parts, axis=1)

        found = self._store.map(found_in, self._runs)
        queries, files, positions = np.concatenate([_NOTHING, *found], axis=1)
        by_place = _by_place(files, positions)
        return Matches(order[queries[by_place]], files[by_place], positions[by_place], paths)


def _by_place(files: Int64s, positions: Int64s) -> Int64s:
    """Return the order of matches by file and position."""
    if len(positions) and int(positions.max()) >> _POSITION_BITS:
        return np.lexsort((positions, files))
    # This takes a third of the time.
    return np.argsort(files << _POSITION_BITS | positions)


def _found_in(store: IndexStore, run: Run, hashes: Hashes, mapped: Int64s) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the queries, files and positions of matches.

    Args:
        store: Where the run is.
        run: The run, which has entries.
        hashes: The hashes, sorted.
        mapped: For each file of the run the number that it has in the matches; -1 if its entries are no matches.
    """
    for start in range(0, len(hashes), _QUERIES_AT_ONCE):
        part = hashes.slice(start, start + _QUERIES_AT_ONCE)
        queries, numbers = _candidates(store, run, fences_of(part.high))
        for first in range(0, len(queries), _PAIRS_AT_ONCE):
            pairs = slice(first, first + _PAIRS_AT_ONCE)
            found, files, positions = _compared(store, run, part, queries[pairs], numbers[pairs])
            files = mapped[files]
            alive = files >= 0
            yield np.stack([found[alive] + start, files[alive], positions[alive]])


def _found_in_all(store: IndexStore, run: Run, hashes: Hashes, mapped: Int64s) -> Iterator[npt.NDArray[np.int64]]:
    """Yield what `_found_in` yields, for so many hashes that about each block has one: all blocks are compared."""
    for first in range(0, run.blocks, _BLOCKS_AT_ONCE):
        blocks = run.read_blocks(store, np.arange(first, min(first + _BLOCKS_AT_ONCE, run.blocks)))
        filled = slice(run.entries - first * BLOCK_ENTRIES)
        high = blocks["high"].reshape(-1)[filled]
        low, files, positions = (blocks[name].reshape(-1) for name in ("low", "file", "position"))
        first_query = int(np.searchsorted(hashes.high, high[0], "left"))
        last_query = int(np.searchsorted(hashes.high, high[-1], "right"))
        for start in range(first_query, last_query, _QUERIES_AT_ONCE):
            part = hashes.slice(start, min(start + _QUERIES_AT_ONCE, last_query))
            queries, entries = np.arange(len(part)), np.searchsorted(high, part.high, "left")
            while len(queries):
                equal = high[entries] == part.high[queries]
                queries, entries = queries[equal], entries[equal]
                numbers = mapped[files[entries]]
                alive = (low[entries] == part.low[queries]) & (numbers >= 0)
                yield np.stack([queries[alive] + start, numbers[alive], positions[entries[alive]].astype(np.int64)])
                # The next entry may have the same hash: a row of another data file.
                more = entries + 1 < len(high)
                queries, entries = queries[more], entries[more] + 1


def _candidates(store: IndexStore, run: Run, wanted: UInt32s) -> tuple[Int64s, Int64s]:
    """Return pairs of a query and of a block that may have its hash, in the order of the queries and blocks.

    Args:
        store: Where the run is.
        wanted: The fences of the queries' own hashes, sorted.
    """
    # An equal fence may also be that of hashes at the end of the page or block before.
    first_pages = np.maximum(np.searchsorted(run.tops, wanted, "left") - 1, 0)
    last_pages = np.searchsorted(run.tops, wanted, "right") - 1
    _, pages = _ranges(first_pages, last_pages)
    pages = np.unique(pages)
    numbers = (pages[:, None] * PAGE_FENCES + np.arange(PAGE_FENCES)).reshape(-1)
    filled = np.searchsorted(numbers, run.blocks)
    numbers = numbers[:filled]
    fences = run.read_pages(store, pages).reshape(-1)[:filled]
    first = np.maximum(np.searchsorted(fences, wanted, "left") - 1, 0)
    last = np.searchsorted(fences, wanted, "right") - 1
    queries, indexes = _ranges(first, last)
    return queries, numbers[indexes]


def _ranges(first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """Return for each of some ranges of numbers its index and each number of it. A range may be empty."""
    sizes = np.maximum(last - first + 1, 0)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    return owners, np.arange(len(owners)) - starts[owners] + first[owners]


def _compared(
    store: IndexStore, run: Run, hashes: Hashes, queries: Int64s, numbers: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Return the queries, the run's own file numbers and the positions of the matches in these blocks."""
    distinct, indexes = np.unique(numbers, return_inverse=True)
    blocks = run.read_blocks(store, distinct)
    at, found, slots = _same(blocks, indexes, hashes, queries)
    whole = distinct[at] * BLOCK_ENTRIES + slots < run.entries
    at, found, slots = at[whole], found[whole], slots[whole]
    return found, blocks["file"][at, slots].astype(np.int64), blocks["position"][at, slots].astype(np.int64)


def _same(blocks: Blocks, indexes: Int64s, hashes: Hashes, queries: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the index of the block, the query and the slot of each entry that has the hash of its query."""
    words = blocks.view(np.int64)
    wanted = (hashes.high.view(np.int64), hashes.low.view(np.int64))
    room = 2 * len(queries)
    while True:
        at, found, slots = (np.empty(room, np.int64) for _ in range(3))
        count = same_hashes(
            words, blocks.dtype.itemsize // 8, BLOCK_ENTRIES, indexes, *wanted, queries, at, found, slots
        )
        if count <= room:
            return at[:count], found[:count], slots[:count]
        room = count
