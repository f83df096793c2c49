"""One table: its buckets, and a write taken through all buckets that it touches as one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo, WriteKind
from fluss_tiering.storage.embedded.bucket import KvBucket, LogBucket
from fluss_tiering.storage.embedded.kv_scan import EmbeddedKvScan
from fluss_tiering.storage.embedded.placement import place_by_key, place_evenly
from fluss_tiering.storage.offered_rows import conform_write


class EmbeddedTable:
    """A table of the embedded storage.

    Attributes:
        info: what it is; its options may change.
        folder: where its files are.

    Its buckets are opened when they are first needed: with thousands of tables a start would wait for all of them.
    """

    def __init__(self, info: TableInfo, folder: Path, open_buckets: Callable[[], Sequence[LogBucket]]) -> None:
        self.info = info
        self.folder = folder
        self._open_buckets = open_buckets
        self._opening = threading.Lock()
        self._opened: Sequence[LogBucket] | None = None
        self._refusal: FlussTieringError | None = None

    @property
    def is_open(self) -> bool:
        """Whether its buckets were opened."""
        return self._opened is not None

    @property
    def buckets(self) -> Sequence[LogBucket]:
        """The one with id n stands at n. Raises CORRUPT_DATA when its files are damaged, STORAGE."""
        if self._opened is None:
            with self._opening:
                self._refuse_dropped()
                if self._opened is None:
                    self._opened = self._open_buckets()
        return self._opened

    @property
    def _kv_buckets(self) -> list[KvBucket]:
        return [bucket for bucket in self.buckets if isinstance(bucket, KvBucket)]

    def bucket(self, bucket: TableBucket) -> LogBucket:
        """The bucket of that id. Raises INVALID_REQUEST when the table has none such."""
        if bucket.partition_id is not None or not 0 <= bucket.bucket < len(self.buckets):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{bucket} does not exist: expected buckets 0 to {len(self.buckets) - 1} of {self.info.path}",
            )
        return self.buckets[bucket.bucket]

    def write(self, kind: WriteKind, rows: pa.Table, commit_timestamp: int) -> Mapping[TableBucket, int]:
        """Writes rows, durably, and returns the log end offset of each bucket touched.

        Raises:
            FlussTieringError: INVALID_ROWS before anything is written; STORAGE, CORRUPT_DATA after what was written has
                been taken back.
        """
        placed = self._place(conform_write(self.info, kind, rows))
        with self._locked(placed) as buckets:
            try:
                for bucket in buckets:
                    bucket.stage(kind, placed[bucket.bucket.bucket], commit_timestamp)
                for bucket in buckets:
                    bucket.sync()
            except BaseException:
                for bucket in buckets:
                    bucket.rollback()
                raise
            for bucket in buckets:
                bucket.publish()
            for bucket in buckets:
                bucket.apply()
            return {bucket.bucket: bucket.log_end_offset for bucket in buckets}

    def take_snapshots(self) -> list[KvSnapshot]:
        """A KV snapshot of each bucket that was ever written to.

        Raises:
            FlussTieringError: TABLE_WITHOUT_PRIMARY_KEY, STORAGE, CORRUPT_DATA.
        """
        self._refuse_without_primary_key("KV snapshots")
        taken = []
        for bucket in self._kv_buckets:
            with self._locked([bucket.bucket.bucket]):
                snapshot = bucket.take_snapshot()
            if snapshot is not None:
                taken.append(snapshot)
        return taken

    def snapshot(self, bucket: int, snapshot_id: int) -> KvSnapshot | None:
        """The KV snapshot, if it exists."""
        if not 0 <= bucket < len(self._kv_buckets):
            return None
        return self._kv_buckets[bucket].snapshots.get(snapshot_id)

    def collect_snapshots(self, keep_newest: int, protected: Mapping[TableBucket, Collection[int]]) -> int:
        """Deletes KV snapshots that are neither protected nor among the newest; returns how many. Raises STORAGE."""
        deleted = 0
        for bucket in self._kv_buckets if self.info.has_primary_key else ():
            with self._locked([bucket.bucket.bucket]):
                deleted += bucket.snapshots.collect(keep_newest, protected.get(bucket.bucket, ()))
        return deleted

    def open_scan(
        self, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, EmbeddedKvScan | None]:
        """The log's end and a scan of a bucket's rows, both as of now; see `TableStorage.open_kv_scan`."""
        self._refuse_without_primary_key("scans by key")
        chosen = self._kv_buckets[self.bucket(bucket).bucket.bucket]
        with self._locked([bucket.bucket]):
            return chosen.open_scan(admit=admit, on_lost=on_lost)

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Nobody else writes to the table or its snapshots meanwhile."""
        with self._opening:
            if self._opened is None:
                # Nobody can: the buckets are not even open. Also when they are damaged, so that it can be dropped.
                yield
                return
        with self._locked(range(len(self._opened))):
            yield

    def release_files(self) -> None:
        """Lets go of all files; the caller is in `exclusively`. They are opened again when they are needed."""
        for bucket in self._opened or ():
            bucket.close()

    def refuse_from_now_on(self, refusal: FlussTieringError) -> None:
        """Whoever comes, or still waits for a lock, gets this error; the caller is in `exclusively`."""
        self._refusal = refusal

    @contextmanager
    def _locked(self, buckets: Collection[int]) -> Iterator[list[LogBucket]]:
        """Holds the locks of these buckets, taken in order, so that no two callers wait for each other."""
        chosen = [self.buckets[bucket] for bucket in sorted(buckets)]
        with ExitStack() as locks:
            for bucket in chosen:
                locks.enter_context(bucket.lock)
            self._refuse_dropped()
            yield chosen

    def _refuse_dropped(self) -> None:
        if self._refusal is not None:
            raise FlussTieringError(self._refusal.code, self._refusal.message)

    def _refuse_without_primary_key(self, what: str) -> None:
        if not self.info.has_primary_key:
            raise FlussTieringError(
                ErrorCode.TABLE_WITHOUT_PRIMARY_KEY,
                f"table {self.info.path} has no primary key and so no {what}: expected a primary-key table",
            )

    def _place(self, records: pa.RecordBatch) -> Mapping[int, pa.RecordBatch]:
        descriptor = self.info.descriptor
        if records.num_rows == 0:
            return {}
        if descriptor.bucket_keys:
            return place_by_key(records, descriptor.column(descriptor.bucket_keys[0]), descriptor.num_buckets)
        return place_evenly(records, [bucket.log_end_offset for bucket in self.buckets])
