"""Opens scans of the primary-key tables of a cluster, which until SCAN_KV has no call for it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.compacted.row import encode_values
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.fluss.buckets import ClusterBuckets
from fluss_tiering.storage.fluss.kv_scan import ClusterKvScan
from fluss_tiering.storage.fluss.reading.kv_changes import KvChanges
from fluss_tiering.storage.fluss.reading.kv_snapshot_files import SnapshotFiles
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.reading.schema_history import SchemaHistory
from fluss_tiering.storage.fluss.reading.stored_values import decode_stored
from fluss_tiering.storage.fluss.rpc.calls.kv_snapshots import acquire_lease, drop_lease
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.parallel import ParallelCalls
from fluss_tiering.storage.rocksdb_files import ENTRY_SCHEMA

_LEASE_MS: Final = 60 * 60 * 1000
_RENEWED_AFTER_S: Final = 10 * 60.0
_RELEASE_S: Final = 5.0
_SNAPSHOTS_TRIED: Final = 5
_FIRST_SCHEMA: Final = 1
_CHUNK_BYTES: Final = 4 << 20


class ClusterScans:
    """The scans of a cluster that are open; safe under concurrent calls."""

    def __init__(
        self,
        client: FlussClient,
        calls: ParallelCalls,
        files: RemoteFiles,
        buckets: ClusterBuckets,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._calls = calls
        self._files = files
        self._buckets = buckets
        self._monotonic = monotonic
        self._open: dict[ClusterKvScan, None] = {}

    def open(
        self, table: TableInfo, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, ClusterKvScan | None]:
        """See `TableStorage.open_kv_scan`; whether there are rows is known only after `admit`.

        Raises:
            FlussTieringError: TABLE_WITHOUT_PRIMARY_KEY; INVALID_REQUEST for a bucket that the table has not;
                LOG_OFFSET_OUT_OF_RANGE, KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA, STORAGE, UNAVAILABLE.
        """
        if not table.has_primary_key:
            raise FlussTieringError(
                ErrorCode.TABLE_WITHOUT_PRIMARY_KEY,
                f"table {table.path} has no primary key and so no scans by key: expected a primary-key table",
            )
        if (bucket.partition_id is None) == bool(table.descriptor.partition_keys):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{bucket}: expected {'a bucket of a partition' if bucket.partition_id is None else 'no partition'}, "
                f"since {table.path} is {'' if table.descriptor.partition_keys else 'not '}partitioned",
            )
        if self._client.call(log_offset(table.path, bucket, OffsetType.LATEST)) == 0:
            return 0, None
        admit()
        pin = self._pin_latest(table, bucket)
        try:
            # Behind the snapshot's moment, so that the log reaches from there to here.
            end = self._client.call(log_offset(table.path, bucket, OffsetType.LATEST))
            scan = self._scan(table, bucket, pin, end, on_lost)
            if scan.has_rows:
                self._open[scan] = None
                return end, scan
        except BaseException:
            pin.drop()
            raise
        scan.close()
        return end, None

    def close(self) -> None:
        """Ends all scans."""
        for scan in list(self._open):
            scan.lose()

    def _scan(
        self, table: TableInfo, bucket: TableBucket, pin: _Pin, end: int, on_lost: Callable[[], None]
    ) -> ClusterKvScan:
        start = 0 if pin.snapshot is None else pin.snapshot.log_offset
        log = FlussSplitReader(self._client, self._files).read_log(table, bucket, start, end) if start < end else ()
        changes = KvChanges(table, log)

        def rows_from(key: bytes | None) -> Generator[pa.RecordBatch, None, None]:
            yield from changes.over(self._entries(table, pin.snapshot, key), key)

        def let_go(scan: ClusterKvScan) -> None:
            self._open.pop(scan, None)
            pin.drop()

        return ClusterKvScan(
            bucket=bucket, log_offset=end, rows_from=rows_from, keep=pin.renew, let_go=let_go, on_lost=on_lost
        )

    def _entries(
        self, table: TableInfo, snapshot: KvSnapshot | None, from_key: bytes | None
    ) -> Generator[pa.RecordBatch, None, None]:
        """The entries of a snapshot, with values under the table's schema of now."""
        if snapshot is None:
            return
        schemas = SchemaHistory(self._client, table)
        files = SnapshotFiles(self._client, self._files, table.path, snapshot)
        for entries in files.entries(from_key, None, _CHUNK_BYTES):
            if table.schema_id == _FIRST_SCHEMA:
                yield entries
                continue
            rows = decode_stored(entries.column("value"), schemas)
            values = encode_values(rows, table.descriptor.columns, table.schema_id)
            yield pa.RecordBatch.from_arrays([entries.column("key"), values], schema=ENTRY_SCHEMA)

    def _pin_latest(self, table: TableInfo, bucket: TableBucket) -> _Pin:
        """The latest KV snapshot, pinned and there; none where the bucket has none yet."""
        gone = ""
        for _ in range(_SNAPSHOTS_TRIED):
            snapshot = self._buckets.latest_kv_snapshot(table, bucket)
            pin = _Pin(self._client, self._calls, snapshot, self._monotonic)
            if snapshot is None or self._buckets.kv_snapshot(bucket, snapshot.snapshot_id) is not None:
                return pin
            # Fluss pins without looking whether it is still there.
            pin.drop()
            gone = f"KV snapshot {snapshot.snapshot_id}"
        raise FlussTieringError(
            ErrorCode.KV_SNAPSHOT_NOT_EXIST,
            f"{bucket} ({table.path}): {gone} went before it could be pinned, and {_SNAPSHOTS_TRIED - 1} before it: "
            "expected one to stay for a moment; start the scan again, or set kv.snapshot.interval higher",
        )


class _Pin:
    """A lease of one snapshot; an orphan's ends by itself."""

    def __init__(
        self, client: FlussClient, calls: ParallelCalls, snapshot: KvSnapshot | None, monotonic: Callable[[], float]
    ) -> None:
        self.snapshot = snapshot
        self._client = client
        self._calls = calls
        self._monotonic = monotonic
        self._lease_id = f"fluss-tiering-scan-{uuid.uuid4()}"
        self._leased = snapshot is not None
        self._renewed_at = monotonic()
        if snapshot is not None:
            self._acquire(snapshot)

    def renew(self) -> None:
        """Renews the lease where it is time to. Raises UNAVAILABLE."""
        if self._leased and self.snapshot is not None and self._monotonic() - self._renewed_at >= _RENEWED_AFTER_S:
            self._renewed_at = self._monotonic()
            self._acquire(self.snapshot)

    def drop(self) -> None:
        """Drops the lease without waiting for it."""
        if self._leased:
            self._leased = False
            self._calls.later(lambda: self._client.call(drop_lease(self._lease_id), within=_RELEASE_S))

    def _acquire(self, snapshot: KvSnapshot) -> None:
        try:
            self._client.call(acquire_lease(self._lease_id, _LEASE_MS, {snapshot.bucket: snapshot.snapshot_id}))
        except FlussTieringError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            # An old cluster: without a lease, as tiering (L15).
            self._leased = False
