"""Measures what a round's lookups in a key index cost, for more and more keys and the same number of changes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.control import Figure
from fluss_tiering.lake.key_index import (
    Entries,
    Hashes,
    IndexStore,
    KeyIndex,
    Place,
    Run,
    RunWriter,
    hash_keys,
    merge_runs,
    read_state,
    runs_to_merge,
    write_run,
    write_state,
)

KEYS: Final = (1_000_000, 10_000_000, 50_000_000)
CHANGES: Final = 10_000
_ROUNDS: Final = 20
_BOUND_S: Final = 2.0
_BOUND_MB: Final = 64
_FILE_ROWS: Final = 1 << 20
_TABLE: Final = "7a2e5d50-58a5-4fd6-8a3c-6d1c04a2d9b1"
_PLACE: Final = Place(_TABLE, 0)


def measure(scale: float) -> Iterator[Figure]:
    """Yield the costs of the index of one bucket. The files are not in the page cache when a round begins."""
    for full in KEYS:
        keys = max(CHANGES, int(full * scale))
        with TemporaryDirectory(prefix="key-index-") as folder:
            yield from _measure(keys, IndexStore(folder))


def _measure(keys: int, store: IndexStore) -> Iterator[Figure]:
    started = time.perf_counter()
    run = _first_run(store, keys)
    seconds = time.perf_counter() - started
    text = f"{seconds:.1f} s, {keys / seconds:,.0f} keys/s, {run.size / keys:.1f} B/key"
    yield Figure(f"{keys:,} keys: make the index", text, "", kept=True)
    write_state(store, _PLACE, 0, [run])
    random = np.random.default_rng(1)
    live = set(run.files)
    rounds = [_Round(store.location, live, number, random.integers(0, keys, CHANGES)) for number in range(_ROUNDS)]
    for each in rounds:
        each.run()
    for name, chosen in (("first round", rounds[:1]), (f"slowest of {_ROUNDS} rounds", rounds)):
        slowest = max(chosen, key=lambda each: each.seconds)
        read = max(each.read_bytes for each in chosen) / 1e6
        text = f"{slowest.seconds:.2f} s, {read:.1f} MB read, {slowest.runs} runs"
        kept = slowest.seconds <= _BOUND_S and read <= _BOUND_MB
        yield Figure(f"{keys:,} keys: {CHANGES:,} changes, {name}", text, f"<= {_BOUND_S:g} s, <= {_BOUND_MB} MB", kept)
    started = time.perf_counter()
    runs = read_state(store, _PLACE, _ROUNDS) or ()
    merged = merge_runs(store, _PLACE, runs, live)
    seconds = time.perf_counter() - started
    text = f"{seconds:.1f} s, {merged.entries / seconds:,.0f} keys/s"
    yield Figure(f"{keys:,} keys: merge all {len(runs)} runs", text, "", kept=True)


def _first_run(store: IndexStore, keys: int) -> Run:
    with RunWriter(store, _PLACE) as writer:
        for start in range(0, keys, _FILE_ROWS):
            rows = np.arange(start, min(start + _FILE_ROWS, keys))
            writer.add(f"s3://lake/db/table/data/first-{start}.parquet", _hashes(rows), rows - start)
        return writer.close()


def _hashes(keys: np.ndarray) -> Hashes:
    return hash_keys([pa.array(keys)], _TABLE)


class _Round:
    """A round that changes random keys: it finds their rows, and adds the keys of its own data file."""

    def __init__(self, location: str, live: set[str], number: int, keys: np.ndarray) -> None:
        self._store = IndexStore(location)
        self._live = live
        self._number = number
        self._keys = keys
        self.seconds = 0.0
        self.read_bytes = 0
        self.runs = 0

    def run(self) -> None:
        _drop_from_page_cache(Path(self._store.location))
        path = f"s3://lake/db/table/data/round-{self._number}.parquet"
        started = time.perf_counter()
        hashes = _hashes(self._keys)
        runs = read_state(self._store, _PLACE, self._number) or ()
        matches = KeyIndex(self._store, _PLACE, runs).find(hashes, self._live)
        assert set(matches.queries.tolist()) == set(range(len(self._keys)))
        self.runs = len(runs)
        runs = (*runs, write_run(self._store, _PLACE, Entries.of_file(path, hashes)))
        self._live.add(path)
        merged = runs_to_merge(runs, self._live)
        if merged:
            kept = [run for run in runs if run not in merged]
            runs = (*kept, merge_runs(self._store, _PLACE, merged, self._live))
        write_state(self._store, _PLACE, self._number + 1, runs)
        self.seconds = time.perf_counter() - started
        self.read_bytes = self._store.counts.bytes


def _drop_from_page_cache(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
