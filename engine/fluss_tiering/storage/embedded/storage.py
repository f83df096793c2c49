"""The storage that is part of the tiering server: tables in a folder of the server's machine, in Fluss's formats."""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.column_changes import ColumnChange
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import (
    BucketInfo,
    KvSnapshot,
    StorageDescription,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    WriteKind,
)
from fluss_tiering.storage.data_dir import DataDir
from fluss_tiering.storage.embedded.catalog import Catalog
from fluss_tiering.storage.embedded.kv_scan import EmbeddedKvScan
from fluss_tiering.storage.embedded.kv_snapshots import read_checkpoint
from fluss_tiering.storage.embedded.reader import EmbeddedSplitReader, reporting_dropped
from fluss_tiering.storage.embedded.segment_reader import stored_batches
from fluss_tiering.storage.embedded.segments import DEFAULT_SEGMENT_BYTES
from fluss_tiering.storage.embedded.table.lake_offsets import (
    check_log_tails,
    is_offsets_file,
    log_tails,
    write_offsets_file,
)
from fluss_tiering.storage.embedded.table.table import EmbeddedTable
from fluss_tiering.storage.protocol import TableStorage

_KIND: Final = "embedded"

_CHUNK_BYTES: Final = 1 << 20
"""The size of a message to readers on other machines; well below gRPC's limit of 4 MiB."""

_OFFSETS_FILES_OF_THIS_SERVER: Final = 1_000
"""How many offsets files are known to fit the logs, since they were written while the logs have been open."""


class LogListener(Protocol):
    """Hears how logs change, in the thread that changes them and after the change."""

    def created(self, table_id: int) -> None:
        """Hear of a new table."""
        ...

    def written(self, log_end_offsets: Mapping[TableBucket, int]) -> None:
        """Hear of a write: the new log end offset of each bucket that got rows, all of one table."""
        ...

    def partition_dropped(self, table_id: int, partition_id: int) -> None:
        """Hear that a partition was dropped."""
        ...


class EmbeddedStorage(TableStorage):
    """A `TableStorage` in a data folder that this process holds until `close`."""

    def __init__(self, data_dir: DataDir, catalog: Catalog, clock: Clock, num_retained_snapshots: int) -> None:
        self._data_dir = data_dir
        self._catalog = catalog
        self._written_offsets: deque[str] = deque(maxlen=_OFFSETS_FILES_OF_THIS_SERVER)
        self._clock = clock
        self._num_retained_snapshots = num_retained_snapshots
        self._listener: LogListener | None = None

    @classmethod
    def open(
        cls,
        data_dir: Path,
        *,
        clock: Clock,
        num_retained_snapshots: int = 1,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        lazily: bool = False,
    ) -> EmbeddedStorage:
        """Take hold of a data folder, or make it, and recover from a crash.

        Args:
            clock: The clock that gives the log batches their time.
            num_retained_snapshots: The number of newest KV snapshots that each bucket keeps even if nothing protects
                them, 1 or more (Fluss's `kv.snapshot.num-retained`).
            segment_bytes: The size at which a new log segment begins (Fluss's `log.segment.file-size`).
            lazily: Whether a table's log is recovered only when the table is first used. A start with thousands of
                tables is then quick, and a damaged table is found later.

        Raises:
            FlussTieringError: DATA_DIR_IN_USE if another process holds the folder; CORRUPT_DATA if a file is damaged or
                foreign; STORAGE if the folder cannot be used.
        """
        if num_retained_snapshots < 1:
            raise ValueError(f"{num_retained_snapshots} snapshots to retain: expected 1 or more")
        _raise_open_files_limit()
        folder = DataDir.open(data_dir)
        try:
            catalog = Catalog(folder, segment_bytes)
            if not lazily:
                catalog.open_all()
            return cls(folder, catalog, clock, num_retained_snapshots)
        except BaseException:
            folder.close()
            raise

    def settle(self) -> None:
        """Record that the data folder belongs where it is now; see `DataDir.settle`."""
        self._data_dir.settle()

    def listen(self, listener: LogListener) -> None:
        """Tell a listener of each change from now on."""
        self._listener = listener

    def describe(self) -> StorageDescription:
        """Return the kind of the storage and its data folder."""
        return StorageDescription(_KIND, str(self._data_dir.root), self._data_dir.id, version("fluss-tiering"))

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> TableInfo:
        """Create a table; see `TableStorage`."""
        info = self._catalog.create(path, descriptor, self._clock.now_ms()).info
        if self._listener is not None:
            self._listener.created(info.table_id)
        return info

    def alter_table(self, path: TablePath, properties: Mapping[str, str]) -> TableInfo:
        """Replace the options of a table; see `TableStorage`."""
        return self._catalog.alter(path, properties)

    def alter_columns(self, path: TablePath, changes: Sequence[ColumnChange]) -> TableInfo:
        """Change the columns of a table; see `TableStorage`."""
        return self._catalog.alter_columns(path, changes)

    def drop_table(self, path: TablePath) -> TableInfo:
        """Drop a table with its files; see `TableStorage`."""
        return self._catalog.drop(path)

    def table(self, path: TablePath) -> TableInfo:
        """Return the table at this path; see `TableStorage`."""
        return self._catalog.get(path).info

    def table_by_id(self, table_id: int) -> TableInfo:
        """Return the table that has this id; see `TableStorage`."""
        return self._catalog.get_by_id(table_id).info

    def tables(self) -> Sequence[TableInfo]:
        """Return all tables, ordered by path."""
        return [table.info for table in self._catalog.all()]

    def write(self, path: TablePath, kind: WriteKind, rows: pa.Table) -> Mapping[TableBucket, int]:
        """Write rows durably; see `TableStorage`. A write that fails is taken back."""
        log_end_offsets = self._catalog.get(path).write(kind, rows, self._clock.now_ms())
        if self._listener is not None:
            self._listener.written(log_end_offsets)
        return log_end_offsets

    def buckets(self, path: TablePath, *, wait_for_leaders: bool = True) -> Sequence[BucketInfo]:
        """Return every bucket of a table; see `TableStorage`."""
        del wait_for_leaders
        return self._catalog.get(path).infos()

    def drop_partition(self, path: TablePath, values: Sequence[str]) -> None:
        """Drop a partition with its files; see `TableStorage`."""
        table = self._catalog.get(path)
        partition_id = table.drop_partition(tuple(values))
        if self._listener is not None:
            self._listener.partition_dropped(table.info.table_id, partition_id)

    def take_kv_snapshots(
        self, path: TablePath, buckets: Collection[TableBucket] | None = None
    ) -> Sequence[KvSnapshot]:
        """Return a KV snapshot of each bucket that was ever written to; see `TableStorage`."""
        return self._catalog.get(path).take_snapshots(buckets)

    def kv_snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        """Return the KV snapshot that has this id, or None if it does not exist or exists no more."""
        try:
            return self._catalog.get_by_id(bucket.table_id).snapshot(bucket, snapshot_id)
        except FlussTieringError as error:
            if error.code is ErrorCode.TABLE_NOT_EXIST:
                return None
            raise

    def collectable_kv_snapshots(self, path: TablePath) -> Sequence[tuple[TableBucket, int]]:
        """Return the KV snapshots of a table that are not among the newest of their bucket; see `TableStorage`."""
        return self._catalog.get(path).collectable_snapshots(self._num_retained_snapshots)

    def delete_kv_snapshots(self, snapshots: Collection[tuple[TableBucket, int]]) -> int:
        """Delete KV snapshots; see `TableStorage`. One that cannot be deleted keeps no other."""
        deleted = 0
        failed: FlussTieringError | None = None
        for bucket, snapshot_id in snapshots:
            try:
                deleted += self._catalog.get_by_id(bucket.table_id).delete_snapshot(bucket, snapshot_id)
            except FlussTieringError as error:
                if error.code not in {ErrorCode.TABLE_NOT_EXIST, ErrorCode.PARTITION_NOT_EXIST}:
                    failed = failed or error
        if failed is not None:
            raise failed
        return deleted

    def reader(self) -> EmbeddedSplitReader:
        """Return a reader of this storage's own files."""
        return EmbeddedSplitReader(self._data_dir.root)

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """Yield the log batches that hold [start_offset, end_offset); see `TableStorage`."""
        table = self._catalog.get_by_id(bucket.table_id)
        source = table.bucket(bucket)
        if end_offset > source.log_end_offset:
            raise FlussTieringError(
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
                f"the log of {bucket} ends at offset {source.log_end_offset}: expected a range up to there, "
                f"not up to {end_offset}",
            )
        pending = bytearray()
        with reporting_dropped(table.info, table.folder, bucket):
            for batch in stored_batches(source.log_folder, start_offset, end_offset):
                # Whoever reads may take its time, and a batch may be large: it is not copied as a whole.
                first = 0
                while first < len(batch.raw):
                    part = batch.raw[first : first + _CHUNK_BYTES - len(pending)]
                    pending += part
                    first += len(part)
                    if len(pending) == _CHUNK_BYTES:
                        chunk = bytes(pending)
                        pending.clear()
                        yield chunk
        if pending:
            yield bytes(pending)

    def fetch_kv_snapshot(
        self, bucket: TableBucket, snapshot_id: int, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the entries of the key range [from_key, to_key); see `TableStorage`."""
        snapshot = self.kv_snapshot(bucket, snapshot_id)
        if snapshot is None:
            raise FlussTieringError(
                ErrorCode.KV_SNAPSHOT_NOT_EXIST,
                f"KV snapshot {snapshot_id} of {bucket} does not exist: expected one that a lease protects",
            )
        yield from read_checkpoint(self._data_dir.root / snapshot.path, from_key, to_key, _CHUNK_BYTES)

    def open_kv_scan(
        self, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, EmbeddedKvScan | None]:
        """Return a bucket's log end offset and a scan of its rows; see `TableStorage`.

        When the storage is closed, the error is NOT_LEADER_OR_FOLLOWER, since another server may have its folder then.
        """
        try:
            return self._catalog.get_by_id(bucket.table_id).open_scan(bucket, admit=admit, on_lost=on_lost)
        except FlussTieringError as error:
            if error.code is not ErrorCode.UNAVAILABLE:
                raise
            raise FlussTieringError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this server no longer leads {bucket}: {error.message}"
            ) from error

    def write_lake_offsets(self, table_id: int, log_end_offsets: Mapping[TableBucket, int]) -> str:
        """Write an offsets file and return its path; see `TableStorage`.

        The ends of the logs are noted before, since a log that ends earlier at the next start has lost rows. It would
        give offsets that the lake has to other rows, which would never be tiered.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_REQUEST if it has no such bucket, or
                an offset is less than -1; STORAGE if the disk refuses.
        """
        table = self._catalog.get_by_id(table_id)
        table.note_log_ends()
        path = str(write_offsets_file(table.folder, table.info, log_end_offsets, log_tails(table.buckets)))
        self._written_offsets.append(path)
        return path

    def has_lake_offsets(self, table_id: int, path: str) -> bool:
        """Return whether `path` is an offsets file of this table that exists; see `TableStorage`.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; LAKE_TABLE_MISMATCH if the file was written
                for other logs than the table has now; CORRUPT_DATA if the file is damaged; STORAGE if it cannot be
                read.
        """
        table = self._catalog.get_by_id(table_id)
        if not is_offsets_file(table.folder, Path(path)):
            return False
        # The logs only change otherwise while no server runs.
        if path not in self._written_offsets:
            check_log_tails(table.info.path, table.buckets, Path(path))
        return True

    def delete_lake_offsets(self, table_id: int, registered: str, kept: Collection[str]) -> int:
        """Delete offsets files that nobody needs any more; see `TableStorage`."""
        return self._catalog.get_by_id(table_id).old_offsets.delete(Path(registered), frozenset(kept))

    def close(self) -> None:
        """Flush all tables and release the data folder. Waiting writes are refused.

        A table that cannot be flushed keeps no other from being closed.

        Raises:
            FlussTieringError: STORAGE if the disk refuses. The tables and the folder are released nevertheless.
        """
        with ExitStack() as closing:
            closing.callback(self._data_dir.close)
            for table in self._catalog.all():
                closing.callback(_close, table)


def _close(table: EmbeddedTable) -> None:
    with table.exclusively(), ExitStack() as closing:
        table.refuse_from_now_on(
            FlussTieringError(ErrorCode.UNAVAILABLE, "the server is shutting down: try again when it is back")
        )
        closing.callback(table.write_log_ends)
        table.release_files()


def _raise_open_files_limit() -> None:
    """Raise the limit of open files to the hard limit, since each bucket's RocksDB keeps about six files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
