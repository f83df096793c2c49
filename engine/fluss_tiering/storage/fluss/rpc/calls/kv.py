"""Calls for the KV snapshots of primary-key tables, for the leases that protect them, and of scan sessions (SCAN_KV).

In a session a bucket's leader gives the rows of the bucket as of one moment. A server closes a session if a call of it
is repeated, comes out of turn, or comes while another one is under way (`ScannerManager`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fluss_tiering.api.fluss.v1 import kv_scan_pb2, kv_snapshots_pb2
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import BucketLeader, Call, ServerKind, command
from fluss_tiering.storage.fluss.rpc.calls.cluster import path_to_pb
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError, raise_for


@dataclass(frozen=True, slots=True)
class LatestKvSnapshot:
    """The newest KV snapshot of a bucket.

    Attributes:
        snapshot_id: The snapshot's id.
        log_offset: The first offset of the log that is not in the snapshot.
    """

    snapshot_id: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class KvSnapshotFiles:
    """The files of a KV snapshot.

    Attributes:
        log_offset: The first offset of the log that is not in the snapshot.
        files: File name in a RocksDB folder -> path of the file as the cluster knows it.
    """

    log_offset: int
    files: Mapping[str, str]


def latest_kv_snapshots(
    path: TablePath, partition_name: str | None = None
) -> Call[kv_snapshots_pb2.GetLatestKvSnapshotsResponse, dict[TableBucket, LatestKvSnapshot | None]]:
    """Ask for the newest KV snapshot of each bucket of a table or of one of its partitions; None if it has none yet.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; TABLE_WITHOUT_PRIMARY_KEY if it has no primary
            key; PARTITION_NOT_EXIST if it has no such partition.
    """
    return Call(
        ApiKey.GET_LATEST_KV_SNAPSHOTS,
        kv_snapshots_pb2.GetLatestKvSnapshotsRequest(table_path=path_to_pb(path), partition_name=partition_name),
        kv_snapshots_pb2.GetLatestKvSnapshotsResponse,
        _latest,
        ServerKind.ANY,
    )


def kv_snapshot_files(
    bucket: TableBucket, snapshot_id: int
) -> Call[kv_snapshots_pb2.GetKvSnapshotMetadataResponse, KvSnapshotFiles]:
    """Ask for the files of a KV snapshot. An answer proves that the snapshot exists; a lease does not.

    Raises:
        FlussTieringError: KV_SNAPSHOT_NOT_EXIST if there is no such snapshot.
    """
    return Call(
        ApiKey.GET_KV_SNAPSHOT_METADATA,
        kv_snapshots_pb2.GetKvSnapshotMetadataRequest(
            table_id=bucket.table_id,
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            snapshot_id=snapshot_id,
        ),
        kv_snapshots_pb2.GetKvSnapshotMetadataResponse,
        lambda response: KvSnapshotFiles(
            response.log_offset, {each.local_file_name: each.remote_path for each in response.snapshot_files}
        ),
        ServerKind.ANY,
    )


def acquire_lease(
    lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int]
) -> Call[kv_snapshots_pb2.AcquireKvSnapshotLeaseResponse, dict[TableBucket, int]]:
    """Protect these snapshots (bucket -> snapshot id) under a lease, and renew the whole lease.

    The result holds the snapshots that could not be protected. Fluss 0.9.1 reports no error for a snapshot that does
    not exist; `kv_snapshot_files` does.
    """
    tables: dict[int, kv_snapshots_pb2.PbKvSnapshotLeaseForTable] = {}
    for bucket, snapshot_id in snapshots.items():
        table = tables.setdefault(bucket.table_id, kv_snapshots_pb2.PbKvSnapshotLeaseForTable(table_id=bucket.table_id))
        table.bucket_snapshots.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket, snapshot_id=snapshot_id)
    return Call(
        ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE,
        kv_snapshots_pb2.AcquireKvSnapshotLeaseRequest(
            lease_id=lease_id, lease_duration_ms=duration_ms, snapshots_to_lease=tables.values()
        ),
        kv_snapshots_pb2.AcquireKvSnapshotLeaseResponse,
        _unavailable,
        ServerKind.COORDINATOR,
    )


def release_lease(
    lease_id: str, buckets: Iterable[TableBucket]
) -> Call[kv_snapshots_pb2.ReleaseKvSnapshotLeaseResponse, None]:
    """Release the buckets of a lease, including buckets that the lease does not know."""
    return command(
        ApiKey.RELEASE_KV_SNAPSHOT_LEASE,
        kv_snapshots_pb2.ReleaseKvSnapshotLeaseRequest(
            lease_id=lease_id,
            buckets_to_release=[
                kv_snapshots_pb2.PbTableBucket(
                    table_id=each.table_id, partition_id=each.partition_id, bucket_id=each.bucket
                )
                for each in buckets
            ],
        ),
        kv_snapshots_pb2.ReleaseKvSnapshotLeaseResponse,
    )


def drop_lease(lease_id: str) -> Call[kv_snapshots_pb2.DropKvSnapshotLeaseResponse, None]:
    """Drop a lease, so that it protects nothing any more."""
    return command(
        ApiKey.DROP_KV_SNAPSHOT_LEASE,
        kv_snapshots_pb2.DropKvSnapshotLeaseRequest(lease_id=lease_id),
        kv_snapshots_pb2.DropKvSnapshotLeaseResponse,
    )


def _latest(response: kv_snapshots_pb2.GetLatestKvSnapshotsResponse) -> dict[TableBucket, LatestKvSnapshot | None]:
    partition_id = response.partition_id if response.HasField("partition_id") else None
    return {
        TableBucket(response.table_id, each.bucket_id, partition_id): LatestKvSnapshot(
            each.snapshot_id, each.log_offset
        )
        if each.HasField("snapshot_id")
        else None
        for each in response.latest_snapshots
    }


def _unavailable(response: kv_snapshots_pb2.AcquireKvSnapshotLeaseResponse) -> dict[TableBucket, int]:
    return {
        TableBucket(
            table.table_id, each.bucket_id, each.partition_id if each.HasField("partition_id") else None
        ): each.snapshot_id
        for table in response.unavailable_snapshots
        for each in table.bucket_snapshots
    }


@dataclass(frozen=True, slots=True, eq=False)
class SessionRows:
    """The next rows of a session.

    Attributes:
        scanner_id: The id of the session; None if the bucket has no rows, so that no session was opened.
        has_more: Whether more rows follow. If not, the server has closed the session.
        records: The rows in the format that `stored_values` reads; empty if there are none.
        log_offset: The offset up to which the log is in the session (exclusive); None in all answers but the first.
    """

    scanner_id: bytes | None
    has_more: bool
    records: bytes
    log_offset: int | None


ScanCall = Call[kv_scan_pb2.ScanKvResponse, SessionRows]


def open_session(path: TablePath, bucket: TableBucket, max_bytes: int) -> ScanCall:
    """Open a session, and ask for its first rows.

    Args:
        path: The path of the bucket's table.
        bucket: A bucket of a primary-key table.
        max_bytes: The size at which the answer ends, in bytes. The last row may exceed it.

    Raises:
        FlussServerError: TOO_MANY_SCANNERS if the bucket or the server has no room for another session;
            NON_PRIMARY_KEY_TABLE_EXCEPTION if the table has no primary key.
    """
    request = kv_scan_pb2.ScanKvRequest(
        bucket_scan_req=kv_scan_pb2.PbScanReqForBucket(
            table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket
        ),
        call_seq_id=0,
        batch_size_bytes=max_bytes,
    )
    return _call(path, bucket, request, lambda response: _rows(response, bucket))


def continue_session(
    path: TablePath, bucket: TableBucket, scanner_id: bytes, call_seq_id: int, max_bytes: int
) -> ScanCall:
    """Ask for a session's next rows. The number of the call is one more than that of the call before.

    An error that the server answers ends the session, so the client does not send the call again.

    Raises:
        FlussTieringError: SCANNER_EXPIRED or UNKNOWN_SCANNER_ID if the session has ended; INVALID_SCAN_REQUEST if the
            number is another one; NOT_LEADER_OR_FOLLOWER if the server no longer leads the bucket; STORAGE if it cannot
            read the rows.
    """
    request = kv_scan_pb2.ScanKvRequest(scanner_id=scanner_id, call_seq_id=call_seq_id, batch_size_bytes=max_bytes)
    return _call(path, bucket, request, lambda response: _continued(response, bucket))


def close_session(path: TablePath, bucket: TableBucket, scanner_id: bytes) -> ScanCall:
    """Close a session, or do nothing if the server does not know it."""
    request = kv_scan_pb2.ScanKvRequest(scanner_id=scanner_id, close_scanner=True)
    return _call(path, bucket, request, lambda response: _rows(response, bucket))


def _call(
    path: TablePath,
    bucket: TableBucket,
    request: kv_scan_pb2.ScanKvRequest,
    read: Callable[[kv_scan_pb2.ScanKvResponse], SessionRows],
) -> ScanCall:
    leader = BucketLeader(path, bucket)
    return Call(ApiKey.SCAN_KV, request, kv_scan_pb2.ScanKvResponse, read, leader, repeatable=False)


def _continued(response: kv_scan_pb2.ScanKvResponse, bucket: TableBucket) -> SessionRows:
    try:
        return _rows(response, bucket)
    except FlussServerError as error:
        raise FlussTieringError(error.code, error.message) from error


def _rows(response: kv_scan_pb2.ScanKvResponse, bucket: TableBucket) -> SessionRows:
    raise_for(response.error_code, response.error_message, f"the scan of {bucket}")
    return SessionRows(
        scanner_id=response.scanner_id if response.HasField("scanner_id") else None,
        has_more=response.has_more_results,
        records=response.records,
        log_offset=response.log_offset if response.HasField("log_offset") else None,
    )
