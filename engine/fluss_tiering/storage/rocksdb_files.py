"""Reads a RocksDB from a folder of its files, in bounded chunks, for embedded and fetched KV snapshots alike."""

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
"""Few enough that large values do not overshoot the size of a chunk by much."""
_READ_AHEAD_BYTES: Final = 2 << 20
_SPARK_FOLDERS: Final = "SPARK_LOCAL_DIRS"
"""Where a worker of Spark may put files, which Spark deletes when the worker was killed before it did."""


@contextmanager
def folder_of_ones_own() -> Iterator[Path]:
    """A folder to put the files of a RocksDB into: rocksdict writes a file of its own into each that it opens."""
    parent = os.environ.get(_SPARK_FOLDERS, "").partition(",")[0]
    with TemporaryDirectory(prefix="fluss-kv-snapshot-", dir=parent or None) as folder:
        yield Path(folder)


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file with the rows of the key range [first_key, last_key]; those of one level do not overlap, except on 0."""

    name: str
    level: int
    first_key: bytes
    last_key: bytes

    def may_hold(self, from_key: bytes | None, to_key: bytes | None) -> bool:
        """Whether RocksDB looks into it for the key range [from_key, to_key)."""
        if self.level == 0:
            return True
        return (from_key is None or self.last_key >= from_key) and (to_key is None or self.first_key < to_key)


def table_files(folder: Path) -> list[TableFile]:
    """The files that hold rows, which may still be stand-ins of the right size."""
    with _opened(folder, partial=True) as db:
        return [
            TableFile(file["name"].lstrip("/"), file["level"], file["start_key"], file["end_key"])
            for file in db.live_files()
        ]


def entries(
    folder: Path, from_key: bytes | None, to_key: bytes | None, chunk_bytes: int, *, partial: bool = False
) -> Iterator[pa.RecordBatch]:
    """The entries of the key range [from_key, to_key), by key, in the `ENTRY_SCHEMA`; raises what rocksdict raises.

    Args:
        folder: of one's own, with the RocksDB's files.
        from_key: None for the first.
        to_key: None for behind the last.
        chunk_bytes: about how large a batch may be.
        partial: whether table files that cannot hold the range may be stand-ins of the right size.
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
        # No file is looked into before a row of it is asked for; what is then found to be damaged is an error still.
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
    """Raises where damage ended the iteration: rocksdict's iterators end there as if it were the end."""
    probe = db.iter(options)
    if last_key is None:
        probe.seek_to_first()
    else:
        probe.seek(last_key)
        if probe.valid():
            probe.next()
    probe.status()
