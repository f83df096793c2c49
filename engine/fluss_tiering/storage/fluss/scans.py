"""Scans of a cluster's primary-key tables for clients of the tiering server.

A leader of Fluss 1.0 scans its buckets itself. In front of an older one, a KV snapshot is merged with the log after it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Generator
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.compacted.row import decode_stored, encode_values, schema_ids
from fluss_tiering.formats.compacted.value_layout import PLAIN, ValueLayout
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.fluss.buckets import ClusterBuckets
from fluss_tiering.storage.fluss.kv_scan import ClusterKvScan, SessionKvScan
from fluss_tiering.storage.fluss.reading.kv_changes import KvChanges
from fluss_tiering.storage.fluss.reading.kv_snapshot_reader import KvSnapshotReader
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.reading.scan_session import ScanSession
from fluss_tiering.storage.fluss.reading.schema_history import SchemaHistory
from fluss_tiering.storage.fluss.rpc.calls.kv import acquire_lease, drop_lease
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.client import FlussClient, ParallelCalls
from fluss_tiering.storage.fluss.table_formats import value_layout
from fluss_tiering.storage.protocol import without_primary_key
from fluss_tiering.storage.rocksdb_files import ENTRY_SCHEMA

_LEASE_MS: Final = 60 * 60 * 1000
_RENEWED_AFTER_S: Final = 10 * 60.0
_RELEASE_S: Final = 5.0
_SNAPSHOTS_TRIED: Final = 5
_CHUNK_BYTES: Final = 4 << 20


class ClusterScans:
    """Opens scans of a cluster's buckets and closes them with the storage. It allows concurrent calls."""

    def __init__(self, client: FlussClient, calls: ParallelCalls, files: RemoteFiles, buckets: ClusterBuckets) -> None:
        self._client = client
        self._calls = calls
        self._files = files
        self._buckets = buckets
        self._lock = threading.Lock()
        self._closed = False
        self._open: dict[ClusterKvScan | SessionKvScan, None] = {}

    def open(
        self, table: TableInfo, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, ClusterKvScan | SessionKvScan | None]:
        """Open a scan of a bucket; see `TableStorage.open_kv_scan`. It is known only after `admit` if there are rows.

        Raises:
            FlussTieringError: TABLE_WITHOUT_PRIMARY_KEY if the table has no primary key; INVALID_REQUEST if it has no
                such bucket; TOO_MANY_SCANNERS if the bucket's leader has no room for another session;
                LOG_OFFSET_OUT_OF_RANGE if the log after the snapshot is gone; KV_SNAPSHOT_NOT_EXIST if snapshots are
                deleted too quickly; NOT_LEADER_OR_FOLLOWER if the storage was closed; CORRUPT_DATA if stored rows are
                damaged; STORAGE if they cannot be read; UNAVAILABLE if the cluster cannot be reached.
        """
        if not table.has_primary_key:
            raise without_primary_key(table.path, "scans by key")
        if (bucket.partition_id is None) == bool(table.descriptor.partition_keys):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{bucket}: expected {'a bucket of a partition' if bucket.partition_id is None else 'no partition'}, "
                f"since {table.path} is {'' if table.descriptor.partition_keys else 'not '}partitioned",
            )
        if self._client.call(log_offset(table.path, bucket, OffsetType.LATEST)) == 0:
            return 0, None
        value_layout(table)
        admit()
        session = ScanSession.open(self._client, table.path, bucket)
        if session is not None:
            return session.log_offset, self._in_session(table, bucket, session, on_lost) if session.has_more else None
        lease = self._lease_latest(table, bucket)
        try:
            # The end is asked for after the snapshot is taken, so that the log reaches from the snapshot to the end.
            end = self._client.call(log_offset(table.path, bucket, OffsetType.LATEST))
            scan = self._scan(table, bucket, lease, end, on_lost)
        except BaseException:
            lease.drop()
            raise
        try:
            if scan.has_rows:
                self._add(scan, bucket)
                return end, scan
        except BaseException:
            scan.close()
            raise
        scan.close()
        return end, None

    def close(self) -> None:
        """End all scans, and refuse those that are being opened."""
        with self._lock:
            self._closed = True
        for scan in list(self._open):
            scan.lose()

    def _add(self, scan: ClusterKvScan | SessionKvScan, bucket: TableBucket) -> None:
        with self._lock:
            if not self._closed:
                self._open[scan] = None
                return
        raise FlussTieringError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{bucket} cannot be scanned any more: the server is shutting down; start the scan again when it is back",
        )

    def _in_session(
        self, table: TableInfo, bucket: TableBucket, session: ScanSession, on_lost: Callable[[], None]
    ) -> SessionKvScan:
        try:
            schemas = SchemaHistory(self._client, table)
        except BaseException:
            session.close()
            raise
        scan = SessionKvScan(
            bucket=bucket,
            session=session,
            present=lambda values: _present(values, table, schemas, PLAIN),
            release=lambda ended: self._open.pop(ended, None),
            on_lost=on_lost,
        )
        try:
            self._add(scan, bucket)
        except BaseException:
            scan.close()
            raise
        return scan

    def _scan(
        self, table: TableInfo, bucket: TableBucket, lease: _SnapshotLease, end: int, on_lost: Callable[[], None]
    ) -> ClusterKvScan:
        start = 0 if lease.snapshot is None else lease.snapshot.log_offset
        log = FlussSplitReader(self._client, self._files).read_log(table, bucket, start, end) if start < end else ()
        changes = KvChanges(table, log)

        def rows_from(key: bytes | None) -> Generator[pa.RecordBatch, None, None]:
            yield from changes.over(self._entries(table, lease.snapshot, key), key)

        def release(scan: ClusterKvScan) -> None:
            self._open.pop(scan, None)
            changes.close()
            lease.drop()

        return ClusterKvScan(
            bucket=bucket, log_offset=end, rows_from=rows_from, renew=lease.renew, release=release, on_lost=on_lost
        )

    def _entries(
        self, table: TableInfo, snapshot: KvSnapshot | None, from_key: bytes | None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the entries of a snapshot, with values under the table's present schema and without tags."""
        if snapshot is None:
            return
        schemas, layout = SchemaHistory(self._client, table), value_layout(table)
        files = KvSnapshotReader(self._client, self._files, table.path, snapshot)
        for entries in files.entries(from_key, None, _CHUNK_BYTES):
            values = _present(entries.column("value"), table, schemas, layout)
            yield pa.RecordBatch.from_arrays([entries.column("key"), values], schema=ENTRY_SCHEMA)

    def _lease_latest(self, table: TableInfo, bucket: TableBucket) -> _SnapshotLease:
        """Lease the latest KV snapshot and make sure that it exists; lease nothing if the bucket has none yet."""
        gone = ""
        for _ in range(_SNAPSHOTS_TRIED):
            snapshot = self._buckets.latest_kv_snapshot(table, bucket)
            lease = _SnapshotLease(self._client, self._calls, snapshot)
            try:
                lease.acquire()
                if snapshot is None or self._buckets.kv_snapshot(bucket, snapshot.snapshot_id) is not None:
                    return lease
            except BaseException:
                # Also if the acquire got no answer, since it may have been done.
                lease.drop()
                raise
            # Fluss grants a lease without checking whether the snapshot still exists.
            lease.drop()
            gone = f"KV snapshot {snapshot.snapshot_id}"
        raise FlussTieringError(
            ErrorCode.KV_SNAPSHOT_NOT_EXIST,
            f"{bucket} ({table.path}): {gone} was deleted before it could be leased, and {_SNAPSHOTS_TRIED - 1} before "
            "it: expected one to stay for a moment; start the scan again, or set kv.snapshot.interval higher",
        )


class _SnapshotLease:
    """A lease of one snapshot. If nobody drops it, it ends by itself."""

    def __init__(self, client: FlussClient, calls: ParallelCalls, snapshot: KvSnapshot | None) -> None:
        self.snapshot = snapshot
        self._client = client
        self._calls = calls
        self._lease_id = f"fluss-tiering-scan-{uuid.uuid4()}"
        self._leased = snapshot is not None
        self._renewed_at = time.monotonic()

    def acquire(self) -> None:
        """Acquire the lease, if there is a snapshot.

        Raises:
            FlussTieringError: UNAVAILABLE if the cluster cannot be reached.
        """
        if self.snapshot is not None:
            self._acquire(self.snapshot)

    def renew(self) -> None:
        """Renew the lease if it is time to.

        Raises:
            FlussTieringError: UNAVAILABLE if the cluster cannot be reached.
        """
        if self._leased and self.snapshot is not None and time.monotonic() - self._renewed_at >= _RENEWED_AFTER_S:
            self._renewed_at = time.monotonic()
            self._acquire(self.snapshot)

    def drop(self) -> None:
        """Drop the lease without waiting for the answer."""
        if self._leased:
            self._leased = False
            self._calls.later(lambda: self._client.call(drop_lease(self._lease_id), within=_RELEASE_S))

    def _acquire(self, snapshot: KvSnapshot) -> None:
        try:
            self._client.call(acquire_lease(self._lease_id, _LEASE_MS, {snapshot.bucket: snapshot.snapshot_id}))
        except FlussTieringError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            # An old cluster has no leases, so the scan does without one, as tiering does.
            self._leased = False


def _present(values: pa.BinaryArray, table: TableInfo, schemas: SchemaHistory, layout: ValueLayout) -> pa.BinaryArray:
    """Return stored values as they are under the table's present schema, without tags."""
    if layout is PLAIN and (schema_ids(values, layout) == table.schema_id).all():
        return values
    return encode_values(decode_stored(values, schemas, layout), table.descriptor.columns, table.schema_id)
