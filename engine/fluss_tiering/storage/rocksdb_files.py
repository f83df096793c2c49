"""Reading a RocksDB from a folder with its files, in bounded chunks; for the KV snapshots of both storages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
from rocksdict import AccessType, Options, Rdict, ReadOptions

ENTRY_SCHEMA: Final = pa.schema([pa.field("key", pa.binary(), False), pa.field("value", pa.binary(), False)])

_ENTRIES_AT_ONCE: Final = 512
"""The number is small, so that large values exceed the size of a chunk only by a little."""
_READ_AHEAD_BYTES: Final = 2 << 20
_SPARK_FOLDERS: Final = "SPARK_LOCAL_DIRS"
"""The variable with the folders for a Spark worker's files. Spark deletes them if the worker is killed."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a temporary folder for the files of a RocksDB, since rocksdict writes a file into each folder it opens."""
    parent = os.environ.get(_SPARK_FOLDERS, "").partition(",")[0]
    with TemporaryDirectory(prefix="fluss-kv-snapshot-", dir=parent or None) as folder:
        yield Path(folder)


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
        chunk_bytes: The approximate size of a batch.
        partial: Whether table files that cannot hold the range may be empty stand-ins of the right size.
    """
    options = ReadOptions()
    options.fill_cache(False)
    options.set_readahead_size(_READ_AHEAD_BYTES)
    if to_key is not None:
        options.set_iterate_upper_bound(to_key)
    with _opened(folder, partial=partial) as db:
        yield from _entries(db, options, from_key, chunk_bytes)


@contextmanager
def _opened(folder: Path, *, partial: bool) -> Iterator[Rdict]:
    options = Options(raw_mode=True)
    if partial:
        # RocksDB then opens a file only when it reads a row from it. Damage that it finds is still an error.
        options.set_paranoid_checks(False)
        options.set_skip_stats_update_on_db_open(True)
    with Rdict(str(folder), options, access_type=AccessType.read_only()) as db:
        yield db


def _entries(db: Rdict, options: ReadOptions, from_key: bytes | None, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    items = db.items(from_key=from_key, read_opt=options)
    last_key = from_key
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0
    while found := list(islice(items, _ENTRIES_AT_ONCE)):
        last_key = found[-1][0]
        arrays = [pa.array(list(map(itemgetter(column), found)), pa.binary()) for column in (0, 1)]
        pending.append(pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA))
        pending_bytes += pending[-1].nbytes
        if pending_bytes >= chunk_bytes:
            yield pa.concat_batches(pending)
            pending, pending_bytes = [], 0
    _check_reached_end(db, options, last_key)
    if pending:
        yield pa.concat_batches(pending)


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
