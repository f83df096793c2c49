"""The key index of one place as a task uses it: what is missing or damaged is rebuilt from the data files."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
from pyarrow import fs

from fluss_tiering.lake.files import LiveDataFile
from fluss_tiering.lake.iceberg.by_position.data_file_keys import read_keys
from fluss_tiering.lake.key_index import (
    Hashes,
    IndexStore,
    KeyIndex,
    Matches,
    Place,
    Run,
    RunWriter,
    StoredState,
    UnusableIndexError,
    hash_keys,
    live_runs,
    merge_runs,
    read_state,
    remove_unreferenced,
    runs_to_merge,
    stored_states,
    write_state,
)
from fluss_tiering.lake.object_store import ExpiredCredentialsError
from fluss_tiering.lake.shared_folder import local_path
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.storage.files import temporary_folder

logger = logging.getLogger(__name__)

KEYS_AT_ONCE: Final = 1 << 20
"""So many keys are looked up at once. They take 16 MB."""
_MAX_FREE_STATES: Final = 8
"""So many states of a place may be old before they are deleted with what only they name."""
_KEPT_STATES: Final = 2
_KEPT_FOR: Final = timedelta(hours=1)
"""Other attempts at a round may still use files that are younger."""


def look_at_folder(location: str) -> None:
    """Warn, on the driver and once, if a table's key index cannot be kept in its folder.

    That is so if it is a plain file, or a folder that this program may not read and write.
    """
    path = local_path(location)
    if path is None or not path.exists():
        return
    if not path.is_dir():
        _warn(path, "is no folder", "remove or rename this file")
    elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        _warn(path, "may not be read and written", "look at the owner and the rights of this folder")


@cache
def _warn(path: Path, why: str, remedy: str) -> None:
    logger.warning(
        "%s %s, so that the key index is not kept, and each round reads the keys of all data files that it needs: %s, "
        "and the next round makes the index again",
        path,
        why,
        remedy,
    )


class PlaceIndex:
    """Finds rows of live data files by their keys, and remembers where new rows are. It is a context manager.

    Args:
        store: Where the index is.
        live: The place's data files in the snapshot from which the round was planned.
        key: The key columns with Iceberg's field ids.
        open_lake: Opens the file system of the data files.
    """

    def __init__(
        self,
        store: IndexStore,
        place: Place,
        live: Sequence[LiveDataFile],
        key: pa.Schema,
        open_lake: Callable[[], fs.FileSystem],
    ) -> None:
        self.store = store
        self.place = place
        self._live = frozenset(file.location for file in live)
        self._key = key
        self._open_lake = open_lake
        self._resources = ExitStack()
        self._new = self._resources.enter_context(RunWriter(store, place))
        self._added: dict[str, None] = {}
        self._adopted: list[Run] = []
        self._kept: set[str] = set()
        self._states: list[StoredState] = []
        self._index: KeyIndex | None = None
        self._beside: KeyIndex | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what is on the local disk."""
        self._resources.close()

    def hashes(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
        """Return the hash of each key."""
        return hash_keys(columns, self.place.table_uuid)

    def add(self, location: str, columns: Sequence[pa.ChunkedArray], first: int) -> None:
        """Remember the rows of a data file that is written: their keys, and the position of the first one."""
        self._added[location] = None
        hashes = self.hashes(columns)
        self._new.add(location, hashes, np.arange(first, first + len(hashes)))

    def adopt(self, runs: Iterable[Run]) -> None:
        """Remember rows of data files that pieces of this round have written, from the runs in which they are noted."""
        self._adopted += runs

    def keep(self, locations: Iterable[str]) -> None:
        """Keep the rows of this round's data files that an earlier `save` has remembered. `find` leaves them out."""
        self._kept.update(locations)

    def find(self, hashes: Hashes) -> list[Matches]:
        """Return the rows of live data files with these keys, also those that are deleted already.

        Raises:
            FlussTieringError: CORRUPT_DATA if a data file cannot be read, of which the index knows nothing.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        if not self._live:
            return []
        try:
            return self._found(hashes)
        except UnusableIndexError as error:
            logger.warning("the key index of %s is made again from the data files: %s", self.place, error.message)
            self._index = KeyIndex(self.store, self.place, ())
            self._beside = None
            return self._found(hashes)

    def _found(self, hashes: Hashes) -> list[Matches]:
        index = self._opened()
        if unknown := index.unknown_files(self._live):
            index = self._with_files(index, unknown)
        found = [index.find(hashes, self._live)]
        if self._beside is not None:
            found.append(self._beside.find(hashes, self._live))
        return found

    def _opened(self) -> KeyIndex:
        """Return the newest index that can be read."""
        if self._index is None:
            runs: tuple[Run, ...] = ()
            try:
                self._states = stored_states(self.store, self.place)
                for newest in self._states[:1]:
                    runs = read_state(self.store, self.place, newest.snapshot_id) or ()
            except ExpiredCredentialsError:
                raise
            except FlussTieringError as error:
                logger.warning("the key index of %s cannot be used: %s", self.place, error.message)
            self._index = KeyIndex(self.store, self.place, runs)
        return self._index

    def _with_files(self, index: KeyIndex, unknown: Iterable[str]) -> KeyIndex:
        """Return an index that has the keys of data files, too, which are read."""
        if self._beside is not None and not (unknown := self._beside.unknown_files(list(unknown))):
            return index
        try:
            run = self._run_of(self.store, unknown)
        except ExpiredCredentialsError:
            raise
        except FlussTieringError as error:
            logger.warning("the key index of %s is kept on the local disk: %s", self.place, error.message)
            scratch = IndexStore(str(self._resources.enter_context(temporary_folder("fluss-key-index"))))
            self._beside = KeyIndex(scratch, self.place, (self._run_of(scratch, unknown),))
            return index
        self._index = KeyIndex(self.store, self.place, (*index.runs, run))
        return self._index

    def _run_of(self, store: IndexStore, locations: Iterable[str]) -> Run:
        lake = self._open_lake()
        with RunWriter(store, self.place) as writer:
            for location in locations:
                first = 0
                writer.add(location, Hashes.empty(), np.empty(0, np.int64))
                for columns in read_keys(lake, location, self._key):
                    hashes = self.hashes(columns)
                    writer.add(location, hashes, np.arange(first, first + len(hashes)))
                    first += len(hashes)
            return writer.close()

    def save(self, state: int) -> None:
        """Write what is known into the store, so that the next round finds it. What fails is only logged.

        Args:
            state: The id of the state, by which an attempt at the same round replaces it.

        Raises:
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        try:
            self._save(state)
        except ExpiredCredentialsError:
            raise
        except FlussTieringError as error:
            # It is only a cache: the next round reads the keys from the data files.
            logger.warning("the key index of %s is not kept: %s", self.place, error.message)

    def _save(self, state: int) -> None:
        new = [*self._adopted, *([self._new.close()] if self._added else ())]
        live = {*self._live, *self._kept, *(location for run in new for location in run.files)}
        before = self._opened().runs if self._live or self._kept else ()
        runs = live_runs([*before, *new], live)
        if merged := runs_to_merge(runs, live):
            names = {run.name for run in merged}
            runs = [*(run for run in runs if run.name not in names), *self._merged(merged, new, live)]
        write_state(self.store, self.place, state, runs)
        older_than = datetime.now(UTC) - _KEPT_FOR
        kept = [state, *(each.snapshot_id for each in self._states)][:_KEPT_STATES]
        free = [each for each in self._states if each.modified is not None and each.modified < older_than]
        if len(free) > _MAX_FREE_STATES:
            # It reads all states that stay.
            remove_unreferenced(self.store, self.place, kept, older_than)

    def _merged(self, runs: Sequence[Run], new: Sequence[Run], live: Collection[str]) -> list[Run]:
        """Return one run in place of some; those of them that are new if another one is damaged.

        A damaged run must not stay in the index, since the next merge would fail, too, and nothing would be kept.
        """
        try:
            return [merge_runs(self.store, self.place, runs, live)]
        except UnusableIndexError as error:
            logger.warning("the key index of %s is made again from the data files: %s", self.place, error.message)
            return [run for run in runs if run in new]
