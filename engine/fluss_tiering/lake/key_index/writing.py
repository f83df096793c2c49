"""Makes runs from the keys of data files, of merged runs, and of the pieces of a round."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.lake.key_index.hashes import Hashes
from fluss_tiering.lake.key_index.kernels import checksums
from fluss_tiering.lake.key_index.place import Place
from fluss_tiering.lake.key_index.run import (
    BLOCK_ENTRIES,
    DIGEST_BYTES,
    NOTED_PREFIX,
    PAGE_FENCES,
    PAGE_TYPE,
    RUN_PREFIX,
    Blocks,
    Run,
    SortedEntries,
    UInt32s,
    block_type,
    checksum_key,
    fences_of,
    in_order,
)
from fluss_tiering.lake.key_index.store import IndexStore
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.files import temporary_folder

_NO_FENCE: Final = 0xFFFFFFFF
_ENTRIES_AT_ONCE: Final = 1 << 16
DEFAULT_BUFFER_BYTES: Final = 64 << 20
"""How many bytes of entries are held in memory by default. Sorting them takes about twice as many."""
_ENTRY_BYTES: Final = 32
_NO_FILE: Final = ""
"""Keys that are deleted have no data file. A run has a name for it all the same."""


def write_sorted(
    store: IndexStore,
    place: Place,
    paths: Sequence[str],
    largest_position: int,
    parts: Iterable[SortedEntries],
    *,
    prefix: str = RUN_PREFIX,
) -> Run:
    """Write a run, in memory for one part and for four bytes a block.

    Args:
        store: Where the run is written.
        place: The place whose keys it has.
        paths: The data files, by their numbers.
        largest_position: The largest position of an entry, or a larger one.
        parts: All entries. No hash of a part is smaller than one of a part before it.
        prefix: What the name of its file begins with.

    Raises:
        FlussTieringError: STORAGE if the store refuses.
    """
    name = f"{place.folder}/{prefix}{uuid.uuid4().hex}"
    with store.writing(name) as stream:
        file = _RunFile(stream, place, name, paths, largest_position)
        for part in parts:
            for start in range(0, len(part), _ENTRIES_AT_ONCE):
                file.add(part.take(slice(start, start + _ENTRIES_AT_ONCE)))
        return file.finish()


class _RunFile:
    """The file of one run, as it is being written."""

    def __init__(
        self, stream: pa.NativeFile, place: Place, name: str, paths: Sequence[str], largest_position: int
    ) -> None:
        self._stream = stream
        self._place = place
        self._name = name
        self._paths = paths
        self._largest_position = largest_position
        self._block_type = block_type(len(paths), largest_position)
        self._rows = np.zeros(len(paths), np.int64)
        self._rest = SortedEntries(Hashes.empty(), np.empty(0, np.int64), np.empty(0, np.int64))
        self._fences: list[UInt32s] = []
        self._blocks = 0
        self._entries = 0

    def add(self, part: SortedEntries) -> None:
        """Add entries. Those that fill no block wait for more."""
        self._entries += len(part)
        self._rows += np.bincount(part.files, minlength=len(self._rows))
        joined = _joined(self._rest, part)
        whole = len(joined) // BLOCK_ENTRIES * BLOCK_ENTRIES
        self._write_blocks(joined.take(slice(0, whole)))
        self._rest = joined.take(slice(whole, None))

    def finish(self) -> Run:
        """Write what waits, the fence pages and the footer."""
        if len(self._rest):
            self._write_blocks(_filled_up(self._rest))
        fences = np.concatenate(self._fences) if self._fences else np.empty(0, np.uint32)
        pages = self._write_pages(fences)
        run = Run(
            self._name,
            self._place,
            self._entries,
            dict(zip(self._paths, self._rows.tolist(), strict=True)),
            self._largest_position,
            pages,
        )
        footer = run.footer()
        self._stream.write(footer)
        return replace(run, footer_bytes=len(footer), digest=footer[-DIGEST_BYTES:])

    def _write_blocks(self, entries: SortedEntries) -> None:
        count = len(entries) // BLOCK_ENTRIES
        if not count:
            return
        blocks = np.empty(count, self._block_type)
        for field, values in (
            ("high", entries.hashes.high),
            ("low", entries.hashes.low),
            ("file", entries.files),
            ("position", entries.positions),
        ):
            blocks[field] = values.reshape(count, BLOCK_ENTRIES)
        self._write(blocks, np.arange(self._blocks, self._blocks + count))
        self._fences.append(fences_of(entries.hashes.high[::BLOCK_ENTRIES]))
        self._blocks += count

    def _write_pages(self, fences: UInt32s) -> UInt32s:
        """Write the fence pages, and return the first fence of each."""
        count = -(-len(fences) // PAGE_FENCES)
        pages = np.empty(count, PAGE_TYPE)
        pages["fence"] = _NO_FENCE
        filled = pages["fence"].reshape(-1)
        filled[: len(fences)] = fences
        pages["fence"] = filled.reshape(count, PAGE_FENCES)
        self._write(pages, np.arange(self._blocks, self._blocks + count))
        return fences[::PAGE_FENCES].copy()

    def _write(self, items: Blocks, numbers: Int64s) -> None:
        """Write items after putting their checksums into them."""
        words = items.view(np.int64) if len(items) else np.empty(0, np.int64)
        sums = np.empty(len(items), np.int64)
        checksums(words, items.dtype.itemsize // 8, numbers, *checksum_key(self._place, self._name), sums)
        items["checksum"] = sums
        self._stream.write(pa.py_buffer(items.view(np.uint8)))


def _joined(one: SortedEntries, other: SortedEntries) -> SortedEntries:
    if not len(one):
        return other
    return SortedEntries(
        Hashes.concat([one.hashes, other.hashes]),
        np.concatenate([one.files, other.files]),
        np.concatenate([one.positions, other.positions]),
    )


def _filled_up(entries: SortedEntries) -> SortedEntries:
    """Return the entries of the last block with copies of the last one, which are beyond the number of entries."""
    indexes = np.minimum(np.arange(BLOCK_ENTRIES), len(entries) - 1)
    return entries.take(indexes)


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


@dataclass(frozen=True, slots=True, eq=False)
class PieceKeys:
    """Where the keys of one piece are. It can be pickled, and takes a few bytes for each 32,768 keys.

    Attributes:
        rows: The run with the rows that the piece has written; None if it has none.
        deleted: The run with the keys whose earlier rows the piece deletes; None if it has none.
    """

    rows: Run | None = None
    deleted: Run | None = None


class PieceKeysWriter:
    """Writes the keys of one piece, in memory of bounded size. It is a context manager.

    Args:
        store: Where the runs are written.
    """

    def __init__(self, store: IndexStore, place: Place) -> None:
        self._rows = RunWriter(store, place, DEFAULT_BUFFER_BYTES // 2, prefix=NOTED_PREFIX)
        self._deleted = RunWriter(store, place, DEFAULT_BUFFER_BYTES // 2, prefix=NOTED_PREFIX)
        self._row_count = 0
        self._deleted_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.abort()

    def abort(self) -> None:
        """Let go of what is on the local disk."""
        for each in (self._rows, self._deleted):
            each.__exit__()

    def add(self, location: str, hashes: Hashes, positions: Int64s) -> None:
        """Add rows of a data file, all of them until the end: see `RunWriter.add`."""
        self._rows.add(location, hashes, positions)
        self._row_count += len(hashes)

    def delete(self, hashes: Hashes) -> None:
        """Add keys whose earlier rows are deleted."""
        self._deleted.add(_NO_FILE, hashes, np.zeros(len(hashes), np.int64))
        self._deleted_count += len(hashes)

    def close(self) -> PieceKeys:
        """Write the runs.

        Raises:
            FlussTieringError: STORAGE if the store or the local disk refuses.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        return PieceKeys(
            self._rows.close() if self._row_count else None, self._deleted.close() if self._deleted_count else None
        )


def deleted_keys(store: IndexStore, keys: PieceKeys) -> Iterator[Hashes]:
    """Yield the hashes of the keys whose earlier rows a piece deletes, sorted, in parts.

    Args:
        store: Where the runs are.

    Raises:
        UnusableIndexError: if the run is missing or damaged.
    """
    if keys.deleted is not None:
        for part in in_order(store, [keys.deleted], [np.zeros(1, np.int64)], DEFAULT_BUFFER_BYTES):
            yield part.hashes
