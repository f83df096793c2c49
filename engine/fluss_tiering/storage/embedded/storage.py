"""The storage that the tiering server brings along: tables in a folder of its own machine, in Fluss's own formats."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_tiering.model.clock import Clock
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
from fluss_tiering.storage.embedded.kv.checkpoint import read_checkpoint
from fluss_tiering.storage.embedded.kv.scan import EmbeddedKvScan
from fluss_tiering.storage.embedded.lake_offsets import is_offsets_file, write_offsets_file
from fluss_tiering.storage.embedded.log.segment_reader import stored_batches
from fluss_tiering.storage.embedded.log.segments import DEFAULT_SEGMENT_BYTES
from fluss_tiering.storage.embedded.reader import EmbeddedSplitReader, reporting_dropped

logger = logging.getLogger(__name__)

_KIND: Final = "embedded"

_CHUNK_BYTES: Final = 1 << 20
"""Of what readers elsewhere are sent at once; well below gRPC's limit for a message, 4 MiB."""


class EmbeddedStorage:
    """A `TableStorage` in a data folder that this process holds until `close`."""

    def __init__(self, data_dir: DataDir, catalog: Catalog, clock: Clock, num_retained_snapshots: int) -> None:
        self._data_dir = data_dir
        self._catalog = catalog
        self._clock = clock
        self._num_retained_snapshots = num_retained_snapshots

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
        """Takes hold of a data folder, a new one where there is none, and recovers what a crash left.

        Args:
            data_dir: the folder.
            clock: gives the log batches their time.
            num_retained_snapshots: newest KV snapshots of a bucket that are kept unprotected, 1 or more (Fluss's
                `kv.snapshot.num-retained`).
            segment_bytes: size from which on a log segment is followed by a new one (Fluss's `log.segment.file-size`).
            lazily: a table's log is recovered when the table is first used, so that a damaged one is found only then,
                and a start with thousands of tables does not wait for it.

        Raises:
            FlussTieringError: DATA_DIR_IN_USE; CORRUPT_DATA naming a torn or foreign file; STORAGE.
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

    def describe(self) -> StorageDescription:
        """Kind and data folder."""
        return StorageDescription(_KIND, str(self._data_dir.root), self._data_dir.id, version("fluss-tiering"))

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> TableInfo:
        """A new table. Raises TABLE_ALREADY_EXIST, INVALID_TABLE, STORAGE."""
        return self._catalog.create(path, descriptor, self._clock.now_ms()).info

    def alter_table(self, path: TablePath, properties: Mapping[str, str]) -> TableInfo:
        """The table with these options instead of its own; columns and keys stay.

        Raises TABLE_NOT_EXIST, INVALID_TABLE, STORAGE.
        """
        return self._catalog.alter(path, properties)

    def drop_table(self, path: TablePath) -> TableInfo:
        """Drops the table with its files and returns what it was. Raises TABLE_NOT_EXIST, STORAGE."""
        return self._catalog.drop(path)

    def table(self, path: TablePath) -> TableInfo:
        """The table of that path. Raises TABLE_NOT_EXIST."""
        return self._catalog.get(path).info

    def table_by_id(self, table_id: int) -> TableInfo:
        """The table of that id. Raises TABLE_NOT_EXIST."""
        return self._catalog.get_by_id(table_id).info

    def tables(self) -> Sequence[TableInfo]:
        """All tables, by path."""
        return [table.info for table in self._catalog.all()]

    def write(self, path: TablePath, kind: WriteKind, rows: pa.Table) -> Mapping[TableBucket, int]:
        """Writes the rows, durably, and returns the log end offset of each bucket touched.

        All rows are checked before the first is written; a write that fails leaves nothing behind. Raises
        TABLE_NOT_EXIST, INVALID_ROWS, STORAGE, CORRUPT_DATA.
        """
        return self._catalog.get(path).write(kind, rows, self._clock.now_ms())

    def buckets(self, path: TablePath) -> Sequence[BucketInfo]:
        """Every bucket with its log range and latest KV snapshot. Raises TABLE_NOT_EXIST."""
        return self._catalog.get(path).infos()

    def drop_partition(self, path: TablePath, values: Sequence[str]) -> None:
        """Drops a partition with its files. Raises TABLE_NOT_EXIST, PARTITION_NOT_EXIST, STORAGE."""
        self._catalog.get(path).drop_partition(tuple(values))

    def take_kv_snapshots(self, path: TablePath) -> Sequence[KvSnapshot]:
        """A KV snapshot of each bucket that was ever written to, now; one that is up to date is kept.

        Raises TABLE_NOT_EXIST, TABLE_WITHOUT_PRIMARY_KEY, STORAGE, CORRUPT_DATA.
        """
        return self._catalog.get(path).take_snapshots()

    def kv_snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        """The snapshot, or None when it does not exist (any more)."""
        try:
            return self._catalog.get_by_id(bucket.table_id).snapshot(bucket, snapshot_id)
        except FlussTieringError as error:
            if error.code is ErrorCode.TABLE_NOT_EXIST:
                return None
            raise

    def collect_kv_snapshots(self, protected: frozenset[tuple[TableBucket, int]]) -> int:
        """Deletes snapshots that are neither protected nor among the newest of their bucket; returns how many.

        The caller makes sure that nothing becomes protected while this runs. Raises STORAGE.
        """
        by_bucket: dict[TableBucket, set[int]] = {}
        for bucket, snapshot_id in protected:
            by_bucket.setdefault(bucket, set()).add(snapshot_id)
        deleted = 0
        for table in self._catalog.all():
            try:
                deleted += table.collect_snapshots(self._num_retained_snapshots, by_bucket)
            except FlussTieringError as error:
                if error.code is ErrorCode.CORRUPT_DATA:
                    # One damaged table must not fill the disk with the others' snapshots.
                    logger.error("KV snapshots of %s are not collected: %s", table.info.path, error.message)
                elif error.code is not ErrorCode.TABLE_NOT_EXIST:
                    raise
        return deleted

    def reader(self) -> EmbeddedSplitReader:
        """A reader of this storage's own files."""
        return EmbeddedSplitReader(self._data_dir.root)

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """The log batches that hold [start_offset, end_offset), whole and as stored, cut anywhere into chunks of a MiB.

        Raises TABLE_NOT_EXIST, INVALID_REQUEST, LOG_OFFSET_OUT_OF_RANGE, CORRUPT_DATA.
        """
        table = self._catalog.get_by_id(bucket.table_id)
        source = table.bucket(bucket)
        if end_offset > source.log_end_offset:
            raise FlussTieringError(
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
                f"{bucket} ends at offset {source.log_end_offset}: expected no range up to {end_offset}",
            )
        pending = bytearray()
        with reporting_dropped(table.info, table.folder, bucket):
            for batch in stored_batches(source.log_folder, start_offset, end_offset):
                pending += batch.raw
                while len(pending) >= _CHUNK_BYTES:
                    yield bytes(pending[:_CHUNK_BYTES])
                    del pending[:_CHUNK_BYTES]
        if pending:
            yield bytes(pending)

    def fetch_kv_snapshot(
        self, bucket: TableBucket, snapshot_id: int, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """The entries of the key range [from_key, to_key) as stored (columns key: binary, value: binary).

        Raises KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA.
        """
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
        """The bucket's log end offset and a scan of its rows, both as of now; no scan for a bucket without rows (K4).

        Raises TABLE_NOT_EXIST, TABLE_WITHOUT_PRIMARY_KEY, INVALID_REQUEST, CORRUPT_DATA, STORAGE, and what `admit`
        does; NOT_LEADER_OR_FOLLOWER once the storage is closed, since another server may have its folder then (K3).
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
        """Writes an offsets file as Fluss lays it out and returns its path (`fluss-offsets` of a lake snapshot).

        Raises TABLE_NOT_EXIST, INVALID_REQUEST, STORAGE.
        """
        table = self._catalog.get_by_id(table_id)
        return str(write_offsets_file(table.folder, table.info, log_end_offsets))

    def has_lake_offsets(self, table_id: int, path: str) -> bool:
        """Whether `path` is an offsets file that `write_lake_offsets` made for that table and that is still there."""
        return is_offsets_file(self._catalog.get_by_id(table_id).folder, Path(path))

    def close(self) -> None:
        """Flushes and lets go of the data folder; writes that wait are refused."""
        refusal = FlussTieringError(ErrorCode.UNAVAILABLE, "the server is shutting down: try again when it is back")
        try:
            for table in self._catalog.all():
                with table.exclusively():
                    table.refuse_from_now_on(refusal)
                    table.release_files()
                    table.write_log_ends()
        finally:
            self._data_dir.close()


def _raise_open_files_limit() -> None:
    """A process may open more files than its soft limit says; each bucket's RocksDB keeps half a dozen open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
