"""The buckets of a cluster's tables: how far their logs reach, and their latest KV snapshots."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Final

from fluss_tiering.formats.log_batch import read_header
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.fluss.calls.kv_snapshots import kv_snapshot_files, latest_kv_snapshots
from fluss_tiering.storage.fluss.calls.log import FetchedLog, OffsetType, fetch_log, log_offset
from fluss_tiering.storage.fluss.calls.tables import Partition, list_partitions
from fluss_tiering.storage.fluss.client import FlussClient
from fluss_tiering.storage.fluss.errors import FlussError, FlussServerError
from fluss_tiering.storage.fluss.parallel import ParallelCalls

UNKNOWN_ROW_COUNT: Final = -1
"""Of a cluster's KV snapshots: only who reads them learns it."""
_MEASURED_BYTES: Final = 64 << 10
"""Of a log are fetched to learn what a row of it takes."""
_MAX_MEASURED_TABLES: Final = 10_000
_PARTITION_GONE: Final = frozenset({FlussError.PARTITION_NOT_EXISTS, FlussError.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION})


class ClusterBuckets:
    """Asks the cluster at each call; what a row of a table takes is measured once. Safe under concurrent calls."""

    def __init__(self, client: FlussClient, calls: ParallelCalls) -> None:
        self._client = client
        self._calls = calls
        self._lock = threading.Lock()
        self._row_bytes: dict[int, float] = {}

    def infos(self, table: TableInfo) -> list[BucketInfo]:
        """Every bucket, of every partition, with its log range and latest KV snapshot.

        Partitions that are dropped meanwhile are left out.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST.
        """
        partitions = self.partitions(table)
        found = self._calls.each(lambda partition: self._of_partition(table, partition), partitions)
        infos = [info for infos in found for info in infos]
        row_bytes = self._measure(table, infos)
        return [
            BucketInfo(
                info.bucket,
                info.log_start_offset,
                info.log_end_offset,
                round((info.log_end_offset - info.log_start_offset) * row_bytes),
                info.latest_kv_snapshot,
                info.partition_values,
            )
            for info in infos
        ]

    def partitions(self, table: TableInfo) -> Sequence[Partition | None]:
        """The partitions, or None alone where the table has none. Raises TABLE_NOT_EXIST."""
        if not table.descriptor.partition_keys:
            return [None]
        return self._client.call(list_partitions(table.path))

    def latest_kv_snapshots(self, table: TableInfo, partition: Partition | None) -> dict[TableBucket, KvSnapshot]:
        """The latest KV snapshot of each bucket that has one. Raises TABLE_NOT_EXIST, TABLE_WITHOUT_PRIMARY_KEY."""
        latest = self._client.call(latest_kv_snapshots(table.path, None if partition is None else partition.name))
        return {
            bucket: _kv_snapshot(bucket, snapshot.snapshot_id, snapshot.log_offset)
            for bucket, snapshot in latest.items()
            if snapshot is not None and bucket.table_id == table.table_id
        }

    def kv_snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        """The snapshot, or None when it does not exist (any more)."""
        try:
            files = self._client.call(kv_snapshot_files(bucket, snapshot_id))
        except FlussTieringError as error:
            if error.code is ErrorCode.KV_SNAPSHOT_NOT_EXIST:
                return None
            raise
        return _kv_snapshot(bucket, snapshot_id, files.log_offset)

    def log_range(self, table: TableInfo, bucket: TableBucket) -> tuple[int, int]:
        """Start and end of a bucket's log, [start, end)."""
        end = self._client.call(log_offset(table.path, bucket, OffsetType.LATEST))
        start = self._client.call(log_offset(table.path, bucket, OffsetType.EARLIEST))
        return min(start, end), end

    def _of_partition(self, table: TableInfo, partition: Partition | None) -> list[BucketInfo]:
        partition_id = None if partition is None else partition.partition_id
        try:
            snapshots = self.latest_kv_snapshots(table, partition) if table.has_primary_key else {}
            buckets = [TableBucket(table.table_id, n, partition_id) for n in range(table.descriptor.num_buckets)]
            return [
                BucketInfo(
                    bucket,
                    *self.log_range(table, bucket),
                    log_size_bytes=0,
                    latest_kv_snapshot=snapshots.get(bucket),
                    partition_values=() if partition is None else tuple(partition.values.values()),
                )
                for bucket in buckets
            ]
        except FlussServerError as error:
            if partition is not None and error.fluss_error in _PARTITION_GONE:
                return []
            raise

    def _measure(self, table: TableInfo, infos: Sequence[BucketInfo]) -> float:
        """Bytes that a row of the log takes, about; 0 as long as no bucket has any."""
        row_bytes = self._row_bytes.get(table.table_id)
        if row_bytes is None:
            longest = max(infos, key=lambda info: info.log_end_offset - info.log_start_offset, default=None)
            if longest is None or longest.log_end_offset <= longest.log_start_offset:
                return 0.0
            # From the middle on: the first batches of a table are often those of a trial.
            middle = (longest.log_start_offset + longest.log_end_offset) // 2
            fetched = self._client.call(fetch_log(table.path, longest.bucket, middle, max_bytes=_MEASURED_BYTES))
            row_bytes = _row_bytes(fetched)
            with self._lock:
                if len(self._row_bytes) >= _MAX_MEASURED_TABLES:
                    self._row_bytes.clear()
                self._row_bytes[table.table_id] = row_bytes
        return row_bytes


def _kv_snapshot(bucket: TableBucket, snapshot_id: int, log_offset: int) -> KvSnapshot:
    return KvSnapshot(bucket, snapshot_id, log_offset, UNKNOWN_ROW_COUNT, size_bytes=0, path="")


def _row_bytes(fetched: FetchedLog) -> float:
    segments = fetched.remote_segments
    if segments:
        rows = sum(segment.end_offset - segment.start_offset for segment in segments)
        return sum(segment.size_bytes for segment in segments) / max(rows, 1)
    size = rows = 0
    for header in _headers(memoryview(fetched.records)):
        size += header[0]
        rows += header[1]
    return size / max(rows, 1)


def _headers(records: memoryview) -> Iterator[tuple[int, int]]:
    """Bytes and offsets of each batch."""
    position = 0
    while (header := read_header(records, position)) is not None:
        yield header.size, header.next_offset - header.base_offset
        position += header.size
