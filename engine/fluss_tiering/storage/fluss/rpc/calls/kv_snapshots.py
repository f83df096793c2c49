"""KV snapshots of primary-key tables, and the leases that keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluss_tiering.api.fluss.v1 import kv_snapshots_pb2
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, Role
from fluss_tiering.storage.fluss.rpc.calls.metadata import path_to_pb


@dataclass(frozen=True, slots=True)
class LatestKvSnapshot:
    """The newest KV snapshot of a bucket; the log from `log_offset` on is not in it."""

    snapshot_id: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class KvSnapshotFiles:
    """What a KV snapshot consists of.

    Attributes:
        files: name in the RocksDB folder to be put together -> path of the file as the cluster knows it.
    """

    log_offset: int
    files: Mapping[str, str]


def latest_kv_snapshots(
    path: TablePath, partition_name: str | None = None
) -> Call[kv_snapshots_pb2.GetLatestKvSnapshotsResponse, dict[TableBucket, LatestKvSnapshot | None]]:
    """The newest KV snapshot of each bucket of a table, or of one of its partitions; None where there is none yet.

    Raises TABLE_NOT_EXIST, TABLE_WITHOUT_PRIMARY_KEY, PARTITION_NOT_EXISTS.
    """
    return Call(
        ApiKey.GET_LATEST_KV_SNAPSHOTS,
        kv_snapshots_pb2.GetLatestKvSnapshotsRequest(table_path=path_to_pb(path), partition_name=partition_name),
        kv_snapshots_pb2.GetLatestKvSnapshotsResponse,
        _latest,
        Role.ANY,
    )


def kv_snapshot_files(
    bucket: TableBucket, snapshot_id: int
) -> Call[kv_snapshots_pb2.GetKvSnapshotMetadataResponse, KvSnapshotFiles]:
    """The files of a KV snapshot: the proof that it exists, which a lease is not. Raises KV_SNAPSHOT_NOT_EXIST."""
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
        Role.ANY,
    )


def acquire_lease(
    lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int]
) -> Call[kv_snapshots_pb2.AcquireKvSnapshotLeaseResponse, dict[TableBucket, int]]:
    """Pins bucket -> snapshot id under the lease, and renews all of it; what could not be pinned.

    Fluss 0.9.1 pins a snapshot that does not exist without a word: `kv_snapshot_files` tells.
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
        Role.COORDINATOR,
    )


def release_lease(
    lease_id: str, buckets: Iterable[TableBucket]
) -> Call[kv_snapshots_pb2.ReleaseKvSnapshotLeaseResponse, None]:
    """Releases buckets, known or not."""
    return Call(
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
        lambda _: None,
        Role.COORDINATOR,
    )


def drop_lease(lease_id: str) -> Call[kv_snapshots_pb2.DropKvSnapshotLeaseResponse, None]:
    """Drops a lease with all it pins."""
    return Call(
        ApiKey.DROP_KV_SNAPSHOT_LEASE,
        kv_snapshots_pb2.DropKvSnapshotLeaseRequest(lease_id=lease_id),
        kv_snapshots_pb2.DropKvSnapshotLeaseResponse,
        lambda _: None,
        Role.COORDINATOR,
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
