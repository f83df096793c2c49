"""Reading a RocksDB from a folder with its files, in bounded chunks; for the KV snapshots of both storages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rocksdict import AccessType, Options, Rdict, ReadOptions

SNAPSHOT_FILES: Final = "fluss-kv-snapshot"
"""The purpose of a temporary folder for a RocksDB's files, since rocksdict writes a file into each folder it opens."""
ENTRY_SCHEMA: Final = pa.schema([pa.field("key", pa.binary(), False), pa.field("value", pa.binary(), False)])

_FETCHED_ENTRIES: Final = 64
"""How many entries are fetched at most before their bytes are counted. It is small, as the next values may be large."""
_FETCHES_IN_CHUNK: Final = 8
_KEY: Final = itemgetter(0)
_VALUE: Final = itemgetter(1)
_VALUES_IN_PART: Final = 512
"""How many values are joined at once: objects of small values take more memory than the values."""
_READ_AHEAD_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file with the rows of the key range [first_key, last_key].

    The files of one level do not overlap, except on level 0.
    """

    name: str
    level: int
    first_key: bytes
    last_key: bytes

    def may_hold(self, from_key: bytes | None, to_key: bytes | None) -> bool:
        """Return whether RocksDB looks into the file for the key range [from_key, to_key)."""
        if self.level == 0:
            return True
        return (from_key is None or self.last_key >= from_key) and (to_key is None or self.first_key < to_key)


def table_files(folder: Path) -> list[TableFile]:
    """List the files that hold rows. The files may still be empty stand-ins of the right size."""
    with _opened(folder, partial=True) as db:
        return [
            TableFile(file["name"].lstrip("/"), file["level"], file["start_key"], file["end_key"])
            for file in db.live_files()
        ]


def entries(
    folder: Path, from_key: bytes | None, to_key: bytes | None, chunk_bytes: int, *, partial: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of the key range [from_key, to_key), ordered by key, in the `ENTRY_SCHEMA`.

    Errors are those of rocksdict.

    Args:
        folder: A folder with the RocksDB's files that nobody else uses.
        from_key: The first key; None to begin with the first entry.
        to_key: The key after the last one; None to end with the last entry.
        chunk_bytes: The greatest size of a batch, unless its only entry is larger.
        partial: Whether table files that cannot hold the range may be empty stand-ins of the right size.
    """
    with _opened(folder, partial=partial) as db:
        yield from entries_of(db, from_key, to_key, chunk_bytes)


def entries_of(db: Rdict, from_key: bytes | None, to_key: bytes | None, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the entries of an open RocksDB with raw keys and values; see `entries`."""
    options = ReadOptions()
    options.fill_cache(False)
    options.set_readahead_size(_READ_AHEAD_BYTES)
    if to_key is not None:
        options.set_iterate_upper_bound(to_key)
    items = db.items(from_key=from_key, read_opt=options)
    last_key = from_key
    chunk = _Chunk()
    fetched_entries = 1
    # This loop takes a tenth of the time of a first round: it makes as few steps as it can for small entries.
    while found := list(islice(items, fetched_entries)):
        last_key = found[-1][0]
        values = list(map(_VALUE, found))
        size = sum(map(len, values)) + len(last_key) * len(found)
        if size * _FETCHES_IN_CHUNK < chunk_bytes and chunk.size + size <= chunk_bytes:
            fetched_entries = _FETCHED_ENTRIES
            chunk.add(map(_KEY, found), values, size)
            continue
        # Large entries come one by one.
        fetched_entries = 1
        for key, value in found:
            size = len(key) + len(value)
            if chunk.size and chunk.size + size > chunk_bytes:
                yield chunk.take()
            chunk.add((key,), (value,), size)
    _check_reached_end(db, options, last_key)
    if chunk.size:
        yield chunk.take()


@contextmanager
def _opened(folder: Path, *, partial: bool) -> Iterator[Rdict]:
    options = Options(raw_mode=True)
    if partial:
        # RocksDB then opens a file only when it reads a row from it. Damage that it finds is still an error.
        options.set_paranoid_checks(False)
        options.set_skip_stats_update_on_db_open(True)
    with Rdict(str(folder), options, access_type=AccessType.read_only()) as db:
        yield db


class _Chunk:
    """Entries that become a batch.

    Attributes:
        size: The number of bytes of all keys and values.
    """

    def __init__(self) -> None:
        self.size = 0
        self._entries = _Binaries(), _Binaries()

    def add(self, keys: Iterable[bytes], values: Iterable[bytes], size: int) -> None:
        """Add entries with this many bytes."""
        self.size += size
        for each, added in zip(self._entries, (keys, values), strict=True):
            each.add(added)

    def take(self) -> pa.RecordBatch:
        """Return the entries and forget them."""
        self.size = 0
        return pa.RecordBatch.from_arrays([each.take() for each in self._entries], schema=ENTRY_SCHEMA)


class _Binaries:
    """Values that become an Arrow array. It takes less time than `pa.array`, which also loads pandas."""

    def __init__(self) -> None:
        self._values: list[bytes] = []
        self._joined: list[bytes] = []
        self._lengths: list[npt.NDArray[np.int32]] = []

    def add(self, values: Iterable[bytes]) -> None:
        self._values += values
        if len(self._values) >= _VALUES_IN_PART:
            self._join()

    def take(self) -> pa.Array:
        """Return the values and forget them."""
        self._join()
        lengths, data = np.concatenate(self._lengths), pa.py_buffer(b"".join(self._joined))
        self._joined, self._lengths = [], []
        ends = np.zeros(lengths.size + 1, np.int32)
        np.cumsum(lengths, out=ends[1:])
        return pa.Array.from_buffers(pa.binary(), lengths.size, [None, pa.py_buffer(ends), data])

    def _join(self) -> None:
        """Join small values, which then take less memory."""
        self._joined.append(b"".join(self._values))
        self._lengths.append(np.fromiter(map(len, self._values), np.int32, len(self._values)))
        self._values = []


def _check_reached_end(db: Rdict, options: ReadOptions, last_key: bytes | None) -> None:
    """Raise an error if damage ended the iteration: an iterator of rocksdict stops at damage as it does at the end."""
    probe = db.iter(options)
    if last_key is None:
        probe.seek_to_first()
    else:
        probe.seek(last_key)
        if probe.valid():
            probe.next()
    probe.status()
