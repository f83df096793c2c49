"""A bucket's rows by key, in RocksDB.

RocksDB's own write-ahead log is off, since the bucket's log serves as one: it is synced before a change is applied
here. Beside the rows, the store keeps the offset up to which it has applied the log, in a second column family that is
flushed together with the first. After a crash the log from that offset on brings the store up to date.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    RdictValues,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_STATE_FAMILY: Final = "state"
_STATE_KEY: Final = b"state"
_STATE: Final = struct.Struct("<qq")
_CACHE_BYTES: Final = 64 << 20
_WRITE_BUFFER_BYTES: Final = 32 << 20
_ALL_WRITE_BUFFERS_BYTES: Final = 256 << 20
_TABLE_FILE_BYTES: Final = 16 << 20
"""Snapshots can be split where a file begins."""
_BLOOM_BITS_PER_KEY: Final = 10
_KEYS_PER_LOOKUP: Final = 4096
"""rocksdict holds the interpreter's lock while it turns keys and values into Python objects. More keys at once would
block the server's other threads for too long."""


@dataclass(frozen=True, slots=True)
class KvState:
    """The offset up to which the log is applied, and the number of rows at that offset."""

    applied_offset: int = 0
    row_count: int = 0


@dataclass(frozen=True, slots=True)
class StoreChanges:
    """Changes by key: values to put and keys to delete. No key is in both."""

    put_keys: Sequence[bytes]
    put_values: Sequence[bytes]
    deleted_keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of RocksDB that holds a range of keys. Files of one level do not overlap, except on level 0."""

    level: int
    size_bytes: int
    first_key: bytes


@dataclass(frozen=True, slots=True, eq=False)
class RocksDbView:
    """A store's rows as of one moment: two iterators that were made at that moment.

    An iterator of RocksDB sees the rows as of the moment when it was made. rocksdict's `Snapshot` cannot be used, since
    its iterators see the present rows.

    Attributes:
        values: The quicker iterator, over the values in the order of their keys. It gives neither keys nor errors.
        cursor: An iterator that finds rows by key.
    """

    values: RdictValues
    cursor: RdictIter


class RocksDbMemory:
    """The memory that all stores of a process share, so that it does not grow with their number."""

    def __init__(self) -> None:
        self.cache = Cache(_CACHE_BYTES)
        self.write_buffers = WriteBufferManager(_ALL_WRITE_BUFFERS_BYTES, False)


class RocksDbStore:
    """The store in one folder. The caller holds the bucket's lock."""

    def __init__(self, folder: Path, memory: RocksDbMemory) -> None:
        """Open the store; make it if there is none.

        Raises:
            FlussTieringError: CORRUPT_DATA if RocksDB cannot open it.
        """
        self._folder = folder
        with reporting_rocksdb_errors(folder):
            self._db = Rdict(str(folder), _options(memory), {_STATE_FAMILY: _options(memory)})
            state = self._db.get_column_family(_STATE_FAMILY).get(_STATE_KEY)
            self._state_family = self._db.get_column_family_handle(_STATE_FAMILY)
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True
        self.state = KvState() if state is None else KvState(*_STATE.unpack(state))

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None if it has none. Sorted keys are the quickest."""
        values: list[bytes | None] = []
        with reporting_rocksdb_errors(self._folder):
            for start in range(0, len(keys), _KEYS_PER_LOOKUP):
                values.extend(self._db.get(keys[start : start + _KEYS_PER_LOOKUP]))
        return values

    def apply(self, changes: StoreChanges, state: KvState) -> None:
        """Make all changes and store the state, in one step."""
        batch = WriteBatch(raw_mode=True)
        deque(map(batch.put, changes.put_keys, changes.put_values), maxlen=0)
        deque(map(batch.delete, changes.deleted_keys), maxlen=0)
        batch.put(_STATE_KEY, _STATE.pack(state.applied_offset, state.row_count), self._state_family)
        with reporting_rocksdb_errors(self._folder):
            self._db.write(batch, self._write_options)
        self.state = state

    def checkpoint(self, target: Path) -> None:
        """Make a consistent copy of the store in a new folder on the same disk, mostly with hard links."""
        with reporting_rocksdb_errors(self._folder):
            Checkpoint(self._db).create_checkpoint(str(target))

    def view(self) -> RocksDbView:
        """Return a view of the rows as they are now.

        The store can be opened again only after the view has been released. The caller makes sure that no changes are
        applied while the view is made.
        """
        options = ReadOptions()
        options.fill_cache(False)
        with reporting_rocksdb_errors(self._folder):
            return RocksDbView(self._db.values(read_opt=options), self._db.iter(options))

    def table_files(self) -> list[LiveFile]:
        """Return the files that hold rows."""
        with reporting_rocksdb_errors(self._folder):
            files = self._db.live_files()
        return [
            LiveFile(file["level"], file["size"], file["start_key"])
            for file in files
            if not file["start_key"] == file["end_key"] == _STATE_KEY
        ]

    def close(self) -> None:
        """Flush and close the store. It is closed even if it cannot be flushed: the log has what it lacks then."""
        try:
            with reporting_rocksdb_errors(self._folder):
                self._db.close()
        finally:
            del self._state_family  # The handle keeps the database open.


@contextmanager
def reporting_rocksdb_errors(folder: Path) -> Iterator[None]:
    """Turn rocksdict's errors, which are plain `Exception`s, into CORRUPT_DATA or STORAGE with the folder's name."""
    try:
        yield
    except FlussTieringError:
        raise
    except Exception as error:
        text = str(error).strip()
        if text.startswith("Corruption") or "No such file" in text:
            raise damaged_rocksdb(folder, text) from error
        remedy = "check the disk's free space and health"
        if "Permission denied" in text or "Operation not permitted" in text:
            remedy = "check the permissions of the folder and of its files, and who runs the server"
        raise FlussTieringError(
            ErrorCode.STORAGE, f"RocksDB failed in {folder} ({text}); {remedy}, then try again"
        ) from error


def damaged_rocksdb(folder: Path, what: str) -> FlussTieringError:
    """Return CORRUPT_DATA, which names the folder of a store and what was found in it."""
    return FlussTieringError(
        ErrorCode.CORRUPT_DATA,
        f"RocksDB finds {folder} damaged ({what}): expected the files it wrote; "
        "stop the server and delete that folder; the rows are then restored from the bucket's log",
    )


def _options(memory: RocksDbMemory) -> Options:
    tables = BlockBasedOptions()
    tables.set_block_cache(memory.cache)
    tables.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(tables)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_target_file_size_base(_TABLE_FILE_BYTES)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options
