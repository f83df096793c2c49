"""One bucket: its log and, in a primary-key table, its rows by key and their snapshots.

A write calls `stage`, `sync`, `publish` and `apply`, or `rollback`, under the bucket's lock, so that the table can do
each step for several buckets together. After `sync` the write is durable, since the log also restores RocksDB.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from fluss_tiering.formats.log.batch import ChangeTypes
from fluss_tiering.formats.stored_schemas import StoredSchemas
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket, TableInfo, WriteKind
from fluss_tiering.storage.embedded.changelog import Change, ChangelogBuilder
from fluss_tiering.storage.embedded.kv_scan import EmbeddedKvScan
from fluss_tiering.storage.embedded.kv_snapshots import CheckpointContent, KvSnapshots
from fluss_tiering.storage.embedded.layout import ROCKSDB_FOLDER
from fluss_tiering.storage.embedded.rocksdb import KvState, RocksDbMemory, RocksDbStore
from fluss_tiering.storage.embedded.segment_reader import CORRUPT_LOG_REMEDY, stored_batches
from fluss_tiering.storage.embedded.segments import LogEncoding, SegmentedLog
from fluss_tiering.storage.files import corrupt

logger = logging.getLogger(__name__)


class LogBucket:
    """A bucket of a log table.

    Attributes:
        lock: The lock that is held during a write, a snapshot and the bucket's closing.
        bucket: The bucket's id.
        log_folder: The folder of the log's segments.
    """

    def __init__(self, info: TableInfo, bucket: TableBucket, log_folder: Path, log: SegmentedLog) -> None:
        self.lock = threading.Lock()
        self.bucket = bucket
        self.log_folder = log_folder
        self._log = log
        self.use(info)

    def use(self, info: TableInfo) -> None:
        """Write by this definition of the table from now on. Whoever calls this later holds the lock."""
        self._encoding = LogEncoding.of(info)

    @property
    def log_end_offset(self) -> int:
        """The end of the log, exclusive; everything before it is acknowledged."""
        return self._log.end_offset

    def stage(self, kind: WriteKind, records: pa.RecordBatch, commit_timestamp: int, *, opens_new: bool = True) -> None:
        """Write the change after the acknowledged end.

        Args:
            kind: The kind of the change.
            commit_timestamp: The commit time, in milliseconds since the epoch.
            opens_new: Whether to open RocksDB for the first rows of a bucket. It takes 10 ms or more, and there are no
                old rows to look up. Without it, the rows are applied from the log when RocksDB is opened.

        Raises:
            FlussTieringError: STORAGE if the write fails; CORRUPT_DATA if stored rows that it needs are damaged.
        """
        self._stage_log(records, None, commit_timestamp)

    def sync(self) -> None:
        """Make the staged change durable.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        self._log.sync()

    def publish(self) -> None:
        """Move the acknowledged end after the synced change."""
        self._log.publish()

    def apply(self) -> None:
        """Do nothing, since a log table has no rows by key."""

    def rollback(self) -> None:
        """Take back the staged change."""
        self._log.rollback()

    def info(self) -> BucketInfo:
        """Return what a reader may plan with."""
        return BucketInfo(self.bucket, self._log.start_offset, self._log.end_offset, self._log.size_bytes)

    @property
    def log_tail(self) -> tuple[int, int] | None:
        """The end of the log, and the commit time in milliseconds of the batch before it; None if it is not known."""
        return self._log.tail

    def close(self) -> None:
        """Do nothing, since no file is open between writes."""

    def _stage_log(self, records: pa.RecordBatch, change_types: ChangeTypes | None, commit_timestamp: int) -> None:
        if records.num_rows == 0:
            return
        base_offset = self._log.end_offset
        batches = self._encoding.batches(records, change_types, base_offset, commit_timestamp)
        self._log.stage(batches, base_offset + records.num_rows, commit_timestamp)


class KvBucket(LogBucket):
    """A bucket of a primary-key table. RocksDB is opened when it is first needed."""

    def __init__(
        self,
        info: TableInfo,
        bucket: TableBucket,
        log_folder: Path,
        log: SegmentedLog,
        *,
        kv_folder: Path,
        snapshots: KvSnapshots,
        memory: RocksDbMemory,
    ) -> None:
        super().__init__(info, bucket, log_folder, log)
        self._kv_folder = kv_folder / ROCKSDB_FOLDER
        self._memory = memory
        self._store: RocksDbStore | None = None
        self._change: Change | None = None
        self._scans: set[EmbeddedKvScan] = set()
        self.snapshots = snapshots

    def use(self, info: TableInfo) -> None:
        """Write by this definition of the table from now on; see `LogBucket.use`."""
        super().use(info)
        self._schemas = StoredSchemas(info)
        self._changelog = ChangelogBuilder(info)

    def stage(self, kind: WriteKind, records: pa.RecordBatch, commit_timestamp: int, *, opens_new: bool = True) -> None:
        """Write the changelog after the acknowledged end; see `LogBucket.stage`."""
        is_new = self._store is None and self._log.end_offset == 0
        lookup = _no_values if is_new and not opens_new else self._open_store().get
        change = (
            self._changelog.delete(records, lookup)
            if kind is WriteKind.DELETE
            else self._changelog.upsert(records, lookup)
        )
        self._change = change
        self._stage_log(change.records, change.change_types, commit_timestamp)

    def apply(self) -> None:
        """Apply the published change to the rows by key."""
        change, self._change = self._change, None
        store = self._store
        if change is None or store is None or change.records.num_rows == 0:
            return
        try:
            store.apply(change.by_key, KvState(self._log.end_offset, store.state.row_count + change.added_rows))
        except FlussTieringError:
            # The write is durable, since the log has it. When the store is opened next, it is applied from the log.
            logger.exception(
                "could not apply a write to RocksDB in %s; it will be applied from the log", self._kv_folder
            )
            with suppress(FlussTieringError):
                self._close_store(store)

    def rollback(self) -> None:
        """Take back the staged change."""
        self._change = None
        super().rollback()

    def info(self) -> BucketInfo:
        """Return what a reader may plan with. The snapshot is never ahead of the log's end."""
        latest = self.snapshots.latest
        return BucketInfo(
            self.bucket, self._log.start_offset, self._log.end_offset, self._log.size_bytes, latest_kv_snapshot=latest
        )

    def take_snapshot(self) -> KvSnapshot | None:
        """Return a snapshot of the present rows: the latest one if nothing was written since; None if nothing ever was.

        Raises:
            FlussTieringError: STORAGE if the snapshot cannot be written; CORRUPT_DATA if stored rows are damaged.
        """
        latest, log_offset = self.snapshots.latest, self._log.end_offset
        if log_offset == 0 or (latest is not None and latest.log_offset == log_offset):
            return latest
        store = self._open_store()

        def write_checkpoint(target: Path) -> CheckpointContent:
            store.checkpoint(target)
            return CheckpointContent(log_offset, store.state.row_count, store.table_files())

        return self.snapshots.add(write_checkpoint)

    def open_scan(self, *, admit: Callable[[], None], on_lost: Callable[[], None]) -> tuple[int, EmbeddedKvScan | None]:
        """Return the log's end and a scan of the rows, both as of now; see `TableStorage.open_kv_scan`."""
        store = self._open_store()
        log_offset = self._log.end_offset
        if store.state.row_count == 0:
            return log_offset, None
        admit()
        scan = EmbeddedKvScan(
            bucket=self.bucket,
            folder=self._kv_folder,
            view=store.view(),
            log_offset=log_offset,
            key_of_value=self._changelog.key_of_value,
            forget=self._scans.discard,
            on_lost=on_lost,
        )
        self._scans.add(scan)
        return log_offset, scan

    def close(self) -> None:
        """Flush and close RocksDB. Its scans end."""
        if self._store is not None:
            self._close_store(self._store)

    def _close_store(self, store: RocksDbStore) -> None:
        self._store = None
        # Open scans would keep the store open.
        for scan in list(self._scans):
            scan.lose()
        store.close()

    def _open_store(self) -> RocksDbStore:
        """Return the store, to which all of the log is applied."""
        store = self._store or RocksDbStore(self._kv_folder, self._memory)
        try:
            self._catch_up(store)
        except BaseException:
            self._close_store(store)
            raise
        self._store = store
        return store

    def _catch_up(self, store: RocksDbStore) -> None:
        """Apply the part of the log that the store does not have yet."""
        end_offset = self._log.end_offset
        if store.state.applied_offset > end_offset:
            raise corrupt(
                self.log_folder,
                f"ends at offset {end_offset}, but RocksDB has applied it up to {store.state.applied_offset}",
                "a log that has all that was applied",
                CORRUPT_LOG_REMEDY,
            )
        for stored in stored_batches(self.log_folder, store.state.applied_offset, end_offset):
            batch = stored.decode(self._schemas).slice(store.state.applied_offset, end_offset)
            if batch.change_types is None:
                raise corrupt(stored.path, "holds appended rows", "a changelog", CORRUPT_LOG_REMEDY)
            by_key, added_rows = self._changelog.replay(batch.records, batch.change_types)
            store.apply(by_key, KvState(stored.header.next_offset, store.state.row_count + added_rows))


def _no_values(keys: Sequence[bytes]) -> list[bytes | None]:
    return [None] * len(keys)
