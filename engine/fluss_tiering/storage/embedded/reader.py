"""Reading splits from the files of an embedded storage on the same machine, without the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.log.batch import LogBatch
from fluss_tiering.formats.stored_schemas import StoredSchemas
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.embedded.layout import log_folder, partition_folder, table_folder
from fluss_tiering.storage.embedded.segment_reader import stored_batches
from fluss_tiering.storage.files import corrupt

_CHUNK_BYTES: Final = 8 << 20


class EmbeddedSplitReader:
    """A `SplitReader` over a data folder. It holds no file open between reads."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def read_log(
        self,
        table: TableInfo,
        bucket: TableBucket,
        start_offset: int,
        end_offset: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[LogBatch]:
        """Yield the rows of a range of the log; see `SplitReader.read_log`."""
        schemas = StoredSchemas(table, columns)
        folder = table_folder(self._data_dir, table.path, table.table_id)
        logs = log_folder(partition_folder(folder, bucket.partition_id), bucket.bucket)
        with reporting_dropped(table, folder, bucket):
            for stored in stored_batches(logs, start_offset, end_offset):
                yield stored.decode(schemas).slice(start_offset, end_offset)

    def read_kv_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a key range; see `SplitReader.read_kv_snapshot`."""
        # Loading compiled decoders and RocksDB takes a worker longer than reading a small piece of a log.
        from fluss_tiering.formats.compacted.row import decode_stored  # noqa: PLC0415
        from fluss_tiering.storage.embedded.kv_snapshots import read_checkpoint  # noqa: PLC0415

        folder, schemas = self._data_dir / snapshot.path, StoredSchemas(table)
        for entries in read_checkpoint(folder, from_key, to_key, _CHUNK_BYTES):
            try:
                rows = decode_stored(entries.column("value"), schemas)
            except FlussTieringError as error:
                if error.code is not ErrorCode.CORRUPT_DATA:
                    raise
                remedy = "take a new KV snapshot and let the round start again"
                raise corrupt(folder, f"has an entry that cannot be read ({error.message})", "rows", remedy) from error
            yield rows

    def measure_kv_snapshot(self, table: TableInfo, snapshot: KvSnapshot) -> KvSnapshot:
        """Return the snapshot as it is, since the storage has measured it."""
        return snapshot


@contextmanager
def reporting_dropped(table: TableInfo, folder: Path, bucket: TableBucket) -> Iterator[None]:
    """Turn errors about missing files into TABLE_NOT_EXIST or PARTITION_NOT_EXIST if the whole folder is missing."""
    try:
        yield
    except FlussTieringError as error:
        if partition_folder(folder, bucket.partition_id).exists():
            raise
        if folder.exists():
            raise FlussTieringError(
                ErrorCode.PARTITION_NOT_EXIST,
                f"{bucket} of {table.path} does not exist: expected a partition that was not dropped meanwhile",
            ) from error
        raise FlussTieringError(
            ErrorCode.TABLE_NOT_EXIST,
            f"table {table.path} with id {table.table_id} does not exist: expected one that was not dropped meanwhile",
        ) from error
