"""A model of the key index: a cache in the lake's folder that may be lost, behind the lake, or ahead of it."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from fluss_tiering.lake.files import LiveDataFile
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from simulation.lake import ModelLake

Rows = tuple[tuple[int, int], ...]
Place = tuple[str, int]
"""A lake table and a bucket."""
Run = Mapping[str, Mapping[int, tuple[int, ...]]]
"""The positions of each key in some data files, as data file -> key -> positions."""
Position = tuple[str, int]
"""A row: its data file, and its position in it."""

_MAX_RUNS: Final = 3
_KEPT_STATES: Final = 3


class ModelKeyIndexes:
    """The key indexes of all lake tables. They belong to no process."""

    def __init__(self, lake: ModelLake, chance: random.Random) -> None:
        self._lake = lake
        self._chance = chance
        self.faults = 1.0
        self._states: dict[Place, dict[int, tuple[Run, ...]]] = {}
        self.counters = {
            "indexes lost": 0,
            "indexes not saved": 0,
            "indexes older than the newest": 0,
            "indexes ahead of the lake": 0,
            "indexes behind the lake": 0,
        }

    def save(self, place: Place, base: int, runs: Sequence[Run]) -> None:
        """Write a state of a place, which replaces that of the same snapshot."""
        if self._happens(0.05):
            self.counters["indexes not saved"] += 1
            return
        states = self._states.setdefault(place, {})
        states.pop(base, None)
        states[base] = tuple(runs)
        for old in list(states)[:-_KEPT_STATES]:
            del states[old]

    def open(self, place: Place, live: Collection[str]) -> tuple[Run, ...]:
        """Return the runs of the newest state that is left."""
        states = self._states.setdefault(place, {})
        if states and self._happens(0.03):
            self.counters["indexes lost"] += 1
            states.clear()
        if len(states) > 1 and self._happens(0.05):
            # The newest state is damaged, or was written by a clock that is slow.
            self.counters["indexes older than the newest"] += 1
            states.popitem()
        runs = next(reversed(states.values())) if states else ()
        known = {location for run in runs for location in run}
        self.counters["indexes ahead of the lake"] += not known <= self._lake.referenced
        self.counters["indexes behind the lake"] += bool(runs) and not known.issuperset(live)
        return runs

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability * self.faults


class SimPlaceIndex:
    """The key index of a place as a task uses it, as `PlaceIndex` does.

    Args:
        lake: The lake.
        indexes: All key indexes.
        place: The place.
        live: The data files that the base of the round has of the place.
    """

    def __init__(self, lake: ModelLake, indexes: ModelKeyIndexes, place: Place, live: Sequence[LiveDataFile]) -> None:
        self._lake = lake
        self._indexes = indexes
        self._place = place
        self._live = {file.location for file in live}
        self._new: list[Run] = []
        self._kept: set[str] = set()
        self._opened: tuple[Run, ...] | None = None

    def add(self, location: str, rows: Rows) -> None:
        """Remember the rows of a data file that this round writes."""
        self._new.append(run_of(location, rows))

    def adopt(self, runs: Iterable[Run]) -> None:
        """Remember rows that pieces of this round have noted."""
        self._new += runs

    def keep(self, locations: Iterable[str]) -> None:
        """Keep the rows of data files of this round that an earlier `save` has remembered."""
        self._kept.update(locations)

    def find(self, keys: Iterable[int]) -> set[Position]:
        """Return the rows of live data files with these keys, also those that are deleted already."""
        if not self._live:
            return set()
        runs = self._runs()
        unknown = self.unknown_files(runs)
        if unknown:
            runs = self._opened = (*runs, *(run_of(location, self._read(location)) for location in sorted(unknown)))
        return {position for position in positions_of(runs, keys) if self.is_live(position[0])}

    def unknown_files(self, runs: Sequence[Run]) -> set[str]:
        """Return the live data files that no run has, and which are therefore read."""
        return self._live.difference(*runs)

    def is_live(self, location: str) -> bool:
        """Return whether a data file is alive in the base of the round. The index may know others."""
        return location in self._live

    def save(self, base: int) -> None:
        """Write what is known for the next round."""
        known = {*self._live, *self._kept, *(location for run in self._new for location in run)}
        before = self._runs() if self._live or self._kept else ()
        runs = [run for run in (*before, *self._new) if known.intersection(run)]
        if len(runs) > _MAX_RUNS:
            runs = [{location: keys for run in reversed(runs) for location, keys in run.items() if location in known}]
        self._indexes.save(self._place, base, runs)

    def _runs(self) -> tuple[Run, ...]:
        if self._opened is None:
            self._opened = self._indexes.open(self._place, self._live)
        return self._opened

    def _read(self, location: str) -> Rows:
        if location in self._lake.deleted:
            raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"the data file {location} is missing")
        return self._lake.files[location].rows


def run_of(location: str, rows: Rows) -> Run:
    """Return where the keys of a data file are."""
    keys: dict[int, tuple[int, ...]] = {}
    for position, (key, _) in enumerate(rows):
        keys[key] = (*keys.get(key, ()), position)
    return {location: keys}


def positions_of(runs: Iterable[Run], keys: Iterable[int]) -> set[Position]:
    """Return all rows with these keys that runs know."""
    wanted = set(keys)
    return {
        (location, position)
        for run in runs
        for location, found in run.items()
        for key in wanted & found.keys()
        for position in found[key]
    }
