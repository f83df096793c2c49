"""Makes runs from the keys of data files."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.lake.key_index.hashes import Hashes
from fluss_tiering.lake.key_index.place import Place
from fluss_tiering.lake.key_index.run import RUN_PREFIX, Run, SortedEntries
from fluss_tiering.lake.key_index.run_file import write_sorted
from fluss_tiering.lake.key_index.sorted_streams import in_order
from fluss_tiering.lake.key_index.store import IndexStore
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.files import temporary_folder

DEFAULT_BUFFER_BYTES: Final = 64 << 20
"""How many bytes of entries are held in memory by default. Sorting them takes about twice as many."""
_ENTRY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Keys and where their rows are.

    Attributes:
        hashes: The hash of each key.
        files: For each key the index in `paths` of the data file with its row.
        positions: The position of the row in the data file, counted from 0.
        paths: The locations of the data files, as the lake table names them. All of their rows are among the entries.
    """

    hashes: Hashes
    files: Int64s
    positions: Int64s
    paths: tuple[str, ...]

    @staticmethod
    def of_file(path: str, hashes: Hashes) -> Entries:
        """Return the entries of a data file from the keys of all of its rows, in the order of the rows."""
        return Entries(hashes, np.zeros(len(hashes), np.int64), np.arange(len(hashes)), (path,))


def write_run(store: IndexStore, place: Place, entries: Entries, *, prefix: str = RUN_PREFIX) -> Run:
    """Sort entries in memory and write them as a run.

    Args:
        store: Where the run is written.
        place: The place whose keys they are.
        entries: The entries, in any order.
        prefix: What the name of its file begins with.

    Raises:
        FlussTieringError: STORAGE if the store refuses; INVALID_REQUEST if the arrays do not fit together.
    """
    _check(entries)
    largest = int(entries.positions.max()) if len(entries.positions) else 0
    ordered = SortedEntries.sorted(entries.hashes, entries.files, entries.positions)
    return write_sorted(store, place, entries.paths, largest, [ordered], prefix=prefix)


class RunWriter:
    """Makes one run of as many entries as there are, in memory of bounded size.

    Entries are held until they take as many bytes as they may. Then they are sorted and written to the local disk. In
    the end all of them are merged into the run. It is a context manager, whose end deletes what is on the local disk.

    Args:
        store: Where the run is written.
        place: The place whose keys it gets.
        buffer_bytes: How many bytes of entries are held in memory. Sorting and writing them takes about twice as many.
        prefix: What the name of its file begins with.
    """

    def __init__(
        self,
        store: IndexStore,
        place: Place,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        *,
        prefix: str = RUN_PREFIX,
    ) -> None:
        self._store = store
        self._place = place
        self._prefix = prefix
        self._buffer_bytes = buffer_bytes
        self._most = max(1, buffer_bytes // _ENTRY_BYTES)
        self._numbers: dict[str, int] = {}
        self._held: list[tuple[Hashes, Int64s, Int64s]] = []
        self._count = 0
        self._spilled: list[Run] = []
        self._resources = ExitStack()
        self._scratch: IndexStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._resources.close()

    def add(self, path: str, hashes: Hashes, positions: Int64s) -> None:
        """Add rows of a data file. Until the end, all rows of the file must be added, also if it has none.

        Args:
            path: The location of the data file, as the lake table names it.
            hashes: The hashes of the rows' keys.
            positions: The positions of the rows.

        Raises:
            FlussTieringError: STORAGE if the local disk refuses; INVALID_REQUEST if there are not as many positions.
        """
        number = self._numbers.setdefault(path, len(self._numbers))
        _check(Entries(hashes, np.zeros(len(hashes), np.int64), positions, (path,)))
        start = 0
        while start < len(hashes):
            end = min(len(hashes), start + self._most - self._count)
            files = np.full(end - start, number, np.int64)
            # Copies, since what is added may be a part of something much larger.
            part = hashes.slice(start, end)
            self._held.append((Hashes(part.high.copy(), part.low.copy()), files, positions[start:end].copy()))
            self._count += end - start
            start = end
            if self._count >= self._most:
                self._spill()

    def close(self) -> Run:
        """Write the run and return it.

        Raises:
            FlussTieringError: STORAGE if the store or the local disk refuses.
        """
        if not self._spilled:
            return write_run(self._store, self._place, self._take(), prefix=self._prefix)
        self._spill()
        scratch = self._local_disk()
        # A file has the same number in each.
        numbers = [np.arange(len(run.files)) for run in self._spilled]
        largest = max(run.largest_position for run in self._spilled)
        ordered = in_order(scratch, self._spilled, numbers, self._buffer_bytes)
        return write_sorted(self._store, self._place, tuple(self._numbers), largest, ordered, prefix=self._prefix)

    def _spill(self) -> None:
        """Write the held entries to the local disk. The files of the run are those up to now, by the same numbers."""
        self._spilled.append(write_run(self._local_disk(), self._place, self._take()))

    def _local_disk(self) -> IndexStore:
        if self._scratch is None:
            self._scratch = IndexStore(str(self._resources.enter_context(temporary_folder("fluss-key-index"))))
        return self._scratch

    def _take(self) -> Entries:
        held, self._held, self._count = self._held, [], 0
        none = np.empty(0, np.int64)
        return Entries(
            Hashes.concat([hashes for hashes, _, _ in held]),
            np.concatenate([none, *(files for _, files, _ in held)]),
            np.concatenate([none, *(positions for _, _, positions in held)]),
            tuple(self._numbers),
        )


def _check(entries: Entries) -> None:
    count = len(entries.hashes)
    files, positions = entries.files, entries.positions
    wrong = None
    if len(files) != count or len(positions) != count:
        wrong = f"{count} keys come with {len(files)} file numbers and {len(positions)} positions"
    elif count and not 0 <= files.min() <= files.max() < len(entries.paths):
        wrong = f"a file number is not from 0 to {len(entries.paths) - 1}"
    elif count and positions.min() < 0:
        wrong = f"a position is {positions.min()}"
    if wrong is not None:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{wrong}: expected for each key the number of its file and its position, counted from 0",
        )
