"""Deletes the files of an index that no state needs any more, and finds indexes that nobody has written lately."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fluss_tiering.lake.key_index.errors import UnusableIndexError
from fluss_tiering.lake.key_index.place import Place
from fluss_tiering.lake.key_index.run import NOTED_PREFIX
from fluss_tiering.lake.key_index.state import named_runs, place_of_state, snapshot_of
from fluss_tiering.lake.key_index.store import IndexStore, StoredFile

_NOTED_FOR: Final = timedelta(days=1)
_DEPTHS: Final = (2, 3)
"""How many folders the files of an index are in, without and with a partition: see `Place.folder`."""


def remove_unreferenced(
    store: IndexStore, place: Place, keep_states: Collection[int], older_than: datetime
) -> list[str]:
    """Delete the states of a place that are not to be kept, and the files that no remaining state names.

    Only files are deleted that were written before a certain time, because a writer makes its runs before the state
    that names them. What pieces have noted is kept for a day longer, because the round that needs it may take hours.
    While a remaining state cannot be read, all runs remain. Should a writer still take a run that is deleted here, its
    index is found to be unusable, and is rebuilt.

    Args:
        store: Where the index is.
        place: The place.
        keep_states: The ids of the lake snapshots whose states are kept.
        older_than: Files that were written at this time or later are kept. It should be longer ago than a round takes.

    Returns:
        The names of the deleted files.

    Raises:
        FlussTieringError: STORAGE if the store refuses.
        ExpiredCredentialsError: if the credentials are not valid any more.
    """
    files = store.files(place.folder)
    old = {file.name for file in files if file.modified is not None and file.modified < _least_time(file, older_than)}
    deleted: list[str] = []
    remaining: list[int] = []
    for file in files:
        snapshot = snapshot_of(file)
        if snapshot is None:
            continue
        if snapshot in keep_states or file.name not in old:
            remaining.append(snapshot)
        else:
            store.delete(file.name)
            deleted.append(file.name)
    named = _named(store, place, remaining)
    if named is not None:
        for name in _others(files, named) & old:
            store.delete(name)
            deleted.append(name)
    return sorted(deleted)


@dataclass(frozen=True, slots=True)
class QuietIndex:
    """The indexes of a partition, in which nobody has written a file lately.

    Attributes:
        table_uuid: The UUID of the Iceberg table.
        partition_values: The values of the partition keys; None if no state says them.
        buckets: The numbers of its buckets.
        names: The names of all files.
    """

    table_uuid: str
    partition_values: tuple[str, ...] | None
    buckets: tuple[int, ...]
    names: tuple[str, ...]


def quiet_indexes(store: IndexStore, older_than: datetime) -> list[QuietIndex]:
    """Return the indexes of partitions, and of tables without partitions, whose files are all old.

    Args:
        store: Where the indexes are.
        older_than: Files that were written at this time or later are not old, and what pieces have noted is old a day
            later.

    Raises:
        FlussTieringError: STORAGE if the store refuses.
        ExpiredCredentialsError: if the credentials are not valid any more.
    """
    folders: dict[tuple[str, ...], list[StoredFile]] = defaultdict(list)
    for file in store.all_files():
        table_uuid, *partition, bucket, _ = file.name.split("/") if file.name.count("/") in _DEPTHS else ("", "", "")
        if table_uuid and bucket.isdecimal():
            folders[table_uuid, *partition].append(file)
    return [
        QuietIndex(
            table_uuid,
            _partition_values(store, files) if partition else (),
            tuple(sorted({int(file.name.split("/")[-2]) for file in files})),
            tuple(sorted(file.name for file in files)),
        )
        for (table_uuid, *partition), files in sorted(folders.items())
        if all(file.modified is not None and file.modified < _least_time(file, older_than) for file in files)
    ]


def _partition_values(store: IndexStore, files: Collection[StoredFile]) -> tuple[str, ...] | None:
    """Return the values that a state says, whose folder only has a digest of them; None if no state can be read."""
    for file in files:
        if snapshot_of(file) is not None:
            try:
                place = place_of_state(store, file)
            except UnusableIndexError:
                continue
            if place is not None:
                return place.partition_values
    return None


def _least_time(file: StoredFile, older_than: datetime) -> datetime:
    is_noted = file.name.rpartition("/")[2].startswith(NOTED_PREFIX)
    return older_than - _NOTED_FOR if is_noted else older_than


def _named(store: IndexStore, place: Place, snapshots: Collection[int]) -> set[str] | None:
    """Return the runs that states name; None if one of the states cannot be read."""
    try:
        runs = store.map(lambda each: named_runs(store, place, each) or (), sorted(snapshots))
        return {run.name for each in runs for run in each}
    except UnusableIndexError:
        return None


def _others(files: Collection[StoredFile], named: Collection[str]) -> set[str]:
    """Return the files that are neither states nor named runs: also temporary ones that a killed writer left."""
    return {file.name for file in files if snapshot_of(file) is None and file.name not in named}
