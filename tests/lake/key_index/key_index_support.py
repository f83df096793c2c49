"""Indexes for tests, and what a plain dictionary says that they hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pytest

from fluss_tiering.lake.key_index import Entries, Hashes, KeyIndex, Matches, Place
from fluss_tiering.lake.key_index import index as index_module

TABLE = "00010203-0405-0607-0809-0a0b0c0d0e0f"
PLACE = Place(TABLE, 3)

Key = tuple[int, int]
"""The two halves of a hash."""
Row = tuple[str, int]
"""A data file and a position in it."""


def hashes_of(keys: Sequence[Key]) -> Hashes:
    high, low = zip(*keys, strict=True) if keys else ((), ())
    return Hashes(np.array(high, np.uint64), np.array(low, np.uint64))


def random_hashes(count: int, seed: int = 1) -> Hashes:
    high, low = np.random.default_rng(seed).integers(0, 2**64 - 1, (2, count), np.uint64, endpoint=True)
    return Hashes(high, low)


def entries_of(files: dict[str, Sequence[Key]]) -> Entries:
    """Return the entries of data files, whose keys are in the order of their rows."""
    keys = [key for rows in files.values() for key in rows]
    numbers = [number for number, rows in enumerate(files.values()) for _ in rows]
    positions = [position for rows in files.values() for position in range(len(rows))]
    return Entries(hashes_of(keys), np.array(numbers, np.int64), np.array(positions, np.int64), tuple(files))


def rows_of(files: dict[str, Sequence[Key]], live: Collection[str]) -> dict[Key, list[Row]]:
    """Return where each key is in the live files, by a plain dictionary."""
    found: dict[Key, list[Row]] = {}
    for path in sorted(live):
        for position, key in enumerate(files.get(path, ())):
            found.setdefault(key, []).append((path, position))
    return found


def found_rows(matches: Matches, queries: int) -> list[list[Row]]:
    """Return the rows that were found for each query, in their order."""
    found: list[list[Row]] = [[] for _ in range(queries)]
    for query, file, position in zip(
        matches.queries.tolist(), matches.files.tolist(), matches.positions.tolist(), strict=True
    ):
        found[query].append((matches.paths[file], position))
    return found


def assert_finds(index: KeyIndex, files: dict[str, Sequence[Key]], live: Collection[str], keys: Iterable[Key]) -> None:
    """Ask an index in both ways: by the fences of its blocks, and by all blocks."""
    asked = list(keys)
    expected = rows_of(files, live)
    for keys_of_a_block in (0, 1 << 40):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(index_module, "_DENSE", keys_of_a_block)
            patched.setattr(index_module, "_BLOCKS_AT_ONCE", 2)
            found = found_rows(index.find(hashes_of(asked), live), len(asked))
        assert found == [expected.get(key, []) for key in asked]
