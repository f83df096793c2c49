"""Changes by key that are too many for memory: a RocksDB in a temporary folder keeps them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.rocksdb_files import entries_of
from fluss_tiering.storage.scratch import temporary_folder

_PURPOSE: Final = "fluss-kv-changes"
_DELETED: Final = b""
"""It stands for a deleted row: the value of a row has at least the id of its schema."""
_WRITE_BUFFER_BYTES: Final = 16 << 20
_WRITTEN_BYTES: Final = 1 << 20
"""The bytes of changes that are written together, as Python's objects and in RocksDB's buffer."""


CHANGE_SCHEMA: Final = pa.schema([pa.field("key", pa.binary(), False), pa.field("value", pa.binary())])
"""Changes by key. The value is null if the row is deleted."""


class SpilledChanges:
    """The last change of each key, on disk."""

    def __init__(self) -> None:
        """Make the folder.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        with ExitStack() as stack:
            self._folder = stack.enter_context(temporary_folder(_PURPOSE))
            with _reporting_errors(self._folder):
                self._db = Rdict(str(self._folder), _options())
            stack.callback(self._db.close)
            self._resources = stack.pop_all()
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True

    def add(self, changes: pa.RecordBatch) -> None:
        """Add changes, in the `CHANGE_SCHEMA`, each of another key. They replace older changes of the same keys.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        keys, values = changes.columns
        values = pc.fill_null(values, _DELETED)
        rows_at_once = max(1, _WRITTEN_BYTES * len(keys) // max(1, keys.nbytes + values.nbytes))
        for start in range(0, len(keys), rows_at_once):
            batch = WriteBatch(raw_mode=True)
            some = (array.slice(start, rows_at_once).to_pylist() for array in (keys, values))
            deque(map(batch.put, *some), maxlen=0)
            with _reporting_errors(self._folder):
                self._db.write(batch, self._write_options)

    def batches(self, from_key: bytes | None, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes from a key on, ordered by key, in the `CHANGE_SCHEMA`.

        Args:
            from_key: The first wanted key; None for all.
            chunk_bytes: The greatest size of a batch, unless its only change is larger.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        with _reporting_errors(self._folder):
            for batch in entries_of(self._db, from_key, None, chunk_bytes):
                keys, values = batch.columns
                living = pc.not_equal(pc.binary_length(values), len(_DELETED))
                yield pa.RecordBatch.from_arrays([keys, pc.if_else(living, values, None)], schema=CHANGE_SCHEMA)

    def close(self) -> None:
        """Delete the folder. A second call does nothing."""
        self._resources.close()


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_compression_type(DBCompressionType.lz4())
    return options


@contextmanager
def _reporting_errors(folder: Path) -> Iterator[None]:
    """Turn rocksdict's errors, which are plain `Exception`s, into STORAGE."""
    try:
        yield
    except FlussTieringError:
        raise
    except Exception as error:
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"the changes of a scan cannot be kept in {folder} ({str(error).strip()}): they did not fit into memory; "
            "check the disk of the temporary files, then start the scan again",
        ) from error
