"""Merges runs, so that a place has few of them, and drops the entries of data files that are gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from fluss_tiering.lake.key_index.place import Place
from fluss_tiering.lake.key_index.run import Run, in_order
from fluss_tiering.lake.key_index.store import IndexStore
from fluss_tiering.lake.key_index.writing import write_sorted

MAX_RUNS: Final = 8
"""How many runs a place has at most after `runs_to_merge` was followed."""
_FEW_RUNS: Final = 4
"""As many runs are not merged only because some of them are of one size."""
_BUFFER_BYTES: Final = 64 << 20


def runs_to_merge(runs: Sequence[Run], live: Collection[str]) -> list[Run]:
    """Return the runs that are worth being merged into one now; none, or one alone to drop its dead entries.

    A run without entries of live data files is not among them, since it can just be left out: see `live_runs`.

    Runs of about the same size are merged. So an entry is written again about once while the number of entries doubles,
    and a place never has more than 8 runs afterwards. If there is nothing to merge, a run of which more than half is
    dead is written anew. How long a merge takes depends on the sizes of the runs: five million entries take a second.

    Args:
        live: The locations of the data files that are alive in the lake snapshot.
    """
    sized = sorted(((_live_entries(run, live), run) for run in live_runs(runs, live)), key=lambda each: each[0])
    sizes = np.array([size for size, _ in sized], np.int64)
    count = 0
    if len(sized) > _FEW_RUNS:
        # A run joins those that are smaller if these are together at least half as large.
        before = np.cumsum(sizes)[:-1]
        joins = np.flatnonzero(2 * before >= sizes[1:])
        count = int(joins[-1]) + 2 if joins.size else 0
    if len(sized) > MAX_RUNS:
        count = max(count, len(sized) - MAX_RUNS + 1)
    merged = [run for _, run in sized[:count]]
    if not merged:
        merged = [run for size, run in sized if 2 * size < run.entries][:1]
    return merged


def live_runs(runs: Sequence[Run], live: Collection[str]) -> list[Run]:
    """Return the runs that have a data file that is alive."""
    return [run for run in runs if any(path in live for path in run.files)]


def merge_runs(store: IndexStore, place: Place, runs: Sequence[Run], live: Collection[str]) -> Run:
    """Write one run with the entries of others, without those of data files that are gone.

    It takes memory for some 64 MiB, however large the runs are, and for four bytes a block of the new one.

    Args:
        store: Where the runs are.
        runs: The runs. They remain as they are.
        live: The locations of the data files that are alive.

    Raises:
        UnusableIndexError: if a run is missing or damaged.
        FlussTieringError: STORAGE if the store refuses to write.
    """
    paths = list(dict.fromkeys(path for run in runs for path in run.files if path in live))
    largest = max((run.largest_position for run in runs), default=0)
    numbers = {path: number for number, path in enumerate(paths)}
    owned: set[str] = set()
    mapped = []
    for run in runs:
        # A file that two runs have is taken from the first of them.
        own = [numbers[path] if path in live and path not in owned else -1 for path in run.files]
        mapped.append(np.array(own, np.int64))
        owned.update(run.files)
    return write_sorted(store, place, paths, largest, in_order(store, runs, mapped, _BUFFER_BYTES))


def _live_entries(run: Run, live: Collection[str]) -> int:
    return sum(rows for path, rows in run.files.items() if path in live)
