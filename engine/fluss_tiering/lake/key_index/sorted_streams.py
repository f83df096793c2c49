"""Reads the entries of runs in their common order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.lake.key_index.hashes import Hashes
from fluss_tiering.lake.key_index.run import BLOCK_ENTRIES, Run, SortedEntries
from fluss_tiering.lake.key_index.store import IndexStore

_BYTES_PER_BLOCK: Final = 4 << 10
"""What a block takes in memory when it is read, unpacked and sorted."""
_MIN_BLOCKS: Final = 16
_MAX_BLOCKS: Final = 1 << 12


def in_order(
    store: IndexStore, runs: Sequence[Run], mapped: Sequence[Int64s], buffer_bytes: int
) -> Iterator[SortedEntries]:
    """Yield the entries of runs in their common order, in parts.

    Args:
        store: Where the runs are.
        runs: The runs.
        mapped: For each run, and each of its files, the number that its entries get; -1 if they are left out.
        buffer_bytes: About how much memory it takes.

    Raises:
        UnusableIndexError: if a run is missing or damaged.
    """
    blocks = buffer_bytes // _BYTES_PER_BLOCK // max(1, len(runs))
    at_once = min(max(blocks, _MIN_BLOCKS), _MAX_BLOCKS)
    return _merged([_entries_of(store, *each, at_once) for each in zip(runs, mapped, strict=True)])


def _entries_of(store: IndexStore, run: Run, mapped: Int64s, at_once: int) -> Iterator[SortedEntries]:
    for start in range(0, run.blocks, at_once):
        blocks = run.read_blocks(store, np.arange(start, min(start + at_once, run.blocks)))
        count = min(len(blocks) * BLOCK_ENTRIES, run.entries - start * BLOCK_ENTRIES)
        files = mapped[blocks["file"].reshape(-1)[:count]]
        high, low = blocks["high"].reshape(-1)[:count], blocks["low"].reshape(-1)[:count]
        positions = blocks["position"].reshape(-1)[:count].astype(np.int64)
        entries = SortedEntries(Hashes(high, low), files, positions)
        yield entries if (files >= 0).all() else entries.take(np.flatnonzero(files >= 0))


def _merged(streams: Sequence[Iterator[SortedEntries]]) -> Iterator[SortedEntries]:
    """Yield the entries of sorted streams in their common order, in parts."""
    held: list[tuple[SortedEntries, Iterator[SortedEntries]]] = []
    for stream in streams:
        first = _next(stream)
        if first is not None:
            held.append((first, stream))
    while held:
        # What is not larger than the last of each part is followed by nothing smaller.
        bound = min(part.hashes.high[-1] for part, _ in held)
        taken: list[SortedEntries] = []
        remaining: list[tuple[SortedEntries, Iterator[SortedEntries]]] = []
        for part, stream in held:
            count = int(np.searchsorted(part.hashes.high, bound, "right"))
            if count:
                taken.append(part.take(slice(0, count)))
            rest = part.take(slice(count, None)) if count < len(part) else _next(stream)
            if rest is not None:
                remaining.append((rest, stream))
        held = remaining
        yield _sorted(taken)


def _next(stream: Iterator[SortedEntries]) -> SortedEntries | None:
    """Return the next part that has entries."""
    return next((part for part in stream if len(part)), None)


def _sorted(parts: Sequence[SortedEntries]) -> SortedEntries:
    if len(parts) == 1:
        return parts[0]
    return SortedEntries.sorted(
        Hashes.concat([each.hashes for each in parts]),
        np.concatenate([each.files for each in parts]),
        np.concatenate([each.positions for each in parts]),
    )
