"""Calls for the KV snapshots of primary-key tables, and for the leases that protect them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluss_tiering.api.fluss.v1 import kv_snapshots_pb2
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind, command
from fluss_tiering.storage.fluss.rpc.calls.cluster import path_to_pb


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
