"""States, small files that name the runs of a place at a lake snapshot, and the files that no state needs any more."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from fluss_tiering.lake.key_index.place import Place, UnusableIndexError, unusable
from fluss_tiering.lake.key_index.run import (
    NOTED_PREFIX,
    Run,
    RunReference,
    digest_of,
    open_run,
    place_of_json,
    place_to_json,
)
from fluss_tiering.lake.key_index.store import IndexStore, StoredFile

_PREFIX: Final = "state-"
_HEADING: Final = "fluss-key-index-state 1"
_NOTED_FOR: Final = timedelta(days=1)
_DEPTHS: Final = (2, 3)
"""How many folders the files of an index are in, without and with a partition: see `Place.folder`."""


def write_state(store: IndexStore, place: Place, snapshot_id: int, runs: Sequence[Run]) -> None:
    """Write which runs a place has at a lake snapshot. A state of the same snapshot is replaced.

    Args:
        store: Where the runs are.

    Raises:
        FlussTieringError: STORAGE if the store refuses.
    """
    described = {
        "place": place_to_json(place),
        "snapshot": snapshot_id,
        "runs": [
            {
                "name": each.name,
                "footer_start": each.footer_start,
                "footer_bytes": each.footer_bytes,
                "digest": each.digest.hex(),
            }
            for each in (run.reference for run in runs)
        ],
    }
    content = f"{_HEADING}\n{json.dumps(described, ensure_ascii=False)}\n".encode()
    store.write_file(_name(place, snapshot_id), content + f"{digest_of(content).hex()}\n".encode())


def read_state(store: IndexStore, place: Place, snapshot_id: int) -> tuple[Run, ...] | None:
    """Return the runs that a place has at a lake snapshot; None if no state of that snapshot was written.

    Args:
        store: Where the runs are.

    Raises:
        UnusableIndexError: if the state or one of its runs is damaged, cannot be read, or is of another version, table,
            place or snapshot; or if one of the runs is missing.
        ExpiredCredentialsError: if the credentials are not valid any more.
    """
    references = named_runs(store, place, snapshot_id)
    if references is None:
        return None
    return tuple(store.map(lambda each: open_run(store, place, each), references))


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state in the store.

    Attributes:
        modified: When it was written; None if the store does not say.
    """

    snapshot_id: int
    modified: datetime | None


def stored_states(store: IndexStore, place: Place) -> list[StoredState]:
    """Return the states of a place, those that were written last first.

    A reader may use any of them: it ignores what is not alive in its own snapshot, and asks for what is unknown.

    Raises:
        FlussTieringError: STORAGE if the store refuses.
        ExpiredCredentialsError: if the credentials are not valid any more.
    """
    states = [file for file in store.files(place.folder, _PREFIX) if snapshot_of(file) is not None]
    states.sort(key=lambda file: (file.modified.timestamp() if file.modified else 0.0, file.name), reverse=True)
    return [StoredState(number, file.modified) for file in states if (number := snapshot_of(file)) is not None]


def named_runs(store: IndexStore, place: Place, snapshot_id: int) -> list[RunReference] | None:
    """Return the runs that a state names, whether they exist or not; None if there is no such state.

    Raises:
        UnusableIndexError: if the state is damaged or cannot be read.
        ExpiredCredentialsError: if the credentials are not valid any more.
    """
    described = _described(store, place, snapshot_id)
    if described is None:
        return None
    return [
        RunReference(each["name"], each["footer_start"], each["footer_bytes"], bytes.fromhex(each["digest"]))
        for each in described["runs"]
    ]


def snapshot_of(file: StoredFile) -> int | None:
    """Return the lake snapshot of a state; None if the file is not a state."""
    name = file.name.rpartition("/")[2]
    number = name.removeprefix(_PREFIX)
    return int(number) if number != name and number.isdecimal() else None


def _name(place: Place, snapshot_id: int) -> str:
    return f"{place.folder}/{_PREFIX}{snapshot_id}"


def place_of_state(store: IndexStore, file: StoredFile) -> Place | None:
    """Return the place that a state names; None if the state is gone meanwhile.

    Raises:
        UnusableIndexError: if the state is damaged or cannot be read, or is not in the folder of its place.
        ExpiredCredentialsError: if the credentials are not valid any more.
    """
    described = _content(store, file.name)
    if described is None:
        return None
    place = place_of_json(described["place"])
    if not file.name.startswith(f"{place.folder}/"):
        raise unusable(store.full_name(file.name), f"is a state of {place}", "a state of the place of its folder")
    return place


def _described(store: IndexStore, place: Place, snapshot_id: int) -> dict[str, Any] | None:
    name = _name(place, snapshot_id)
    described = _content(store, name)
    if described is None:
        return None
    found = place_of_json(described["place"])
    if (found, described["snapshot"]) != (place, snapshot_id):
        raise unusable(
            store.full_name(name),
            f"is the state of {found} at the snapshot {described['snapshot']}",
            f"that of {place} at the snapshot {snapshot_id}",
        )
    return described


def _content(store: IndexStore, name: str) -> dict[str, Any] | None:
    """Return what a state says; None if it does not exist."""
    content = store.read_file(name)
    if content is None:
        return None
    location = store.full_name(name)
    *lines, digest, end = content.split(b"\n") if content.count(b"\n") == 3 else (b"", b"", b"")
    if end or digest != digest_of(b"".join(line + b"\n" for line in lines)).hex().encode():
        raise unusable(location, "has a wrong digest", "the state that was written")
    if lines[0] != _HEADING.encode():
        raise unusable(location, f"begins with {lines[0]!r}", repr(_HEADING))
    described: dict[str, Any] = json.loads(lines[1])
    return described


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
