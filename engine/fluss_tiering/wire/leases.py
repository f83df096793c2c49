"""KV snapshot leases <-> messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.model.table import TableBucket
from fluss_tiering.wire.buckets import bucket_of_table
from fluss_tiering.wire.checks import not_negative
from fluss_tiering.wire.errors import error_from_pb, error_to_pb


def snapshots_to_pb(snapshots: Mapping[TableBucket, int]) -> list[pb.PbKvSnapshotLeaseForTable]:
    """Bucket -> snapshot id, grouped by table."""
    tables: dict[int, pb.PbKvSnapshotLeaseForTable] = {}
    for bucket, snapshot_id in snapshots.items():
        table = tables.setdefault(bucket.table_id, pb.PbKvSnapshotLeaseForTable(table_id=bucket.table_id))
        table.bucket_snapshots.append(
            pb.PbKvSnapshotLeaseForBucket(
                partition_id=bucket.partition_id, bucket_id=bucket.bucket, snapshot_id=snapshot_id
            )
        )
    return list(tables.values())


def snapshots_from_pb(tables: Iterable[pb.PbKvSnapshotLeaseForTable]) -> dict[TableBucket, int]:
    """Bucket -> snapshot id; INVALID_REQUEST for a negative id or a bucket that is named twice."""
    snapshots: dict[TableBucket, int] = {}
    for table in tables:
        not_negative(table, "table_id", table.table_id)
        for message in table.bucket_snapshots:
            bucket = bucket_of_table(table.table_id, message)
            if bucket in snapshots:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST, f"{bucket} is named twice: a lease pins one snapshot of a bucket"
                )
            snapshots[bucket] = not_negative(message, "snapshot_id", message.snapshot_id)
    return snapshots


def acquired_to_pb(acquired: AcquiredLease) -> pb.AcquireKvSnapshotLeaseResponse:
    """The answer to an acquire."""
    return pb.AcquireKvSnapshotLeaseResponse(
        unavailable_snapshots=snapshots_to_pb(acquired.unavailable_snapshots),
        attempt_token=acquired.attempt_token,
        expiration_time=acquired.expiration_time,
    )


def acquired_from_pb(lease_id: str, message: pb.AcquireKvSnapshotLeaseResponse) -> AcquiredLease:
    """The answer to an acquire."""
    return AcquiredLease(
        lease_id=lease_id,
        attempt_token=message.attempt_token,
        expiration_time=message.expiration_time,
        unavailable_snapshots=snapshots_from_pb(message.unavailable_snapshots),
    )


def renewed_to_pb(lease_id: str, renewed: int | FlussTieringError) -> pb.PbLeaseRenewed:
    """The new expiration time of one lease, or why it has none."""
    if isinstance(renewed, FlussTieringError):
        return pb.PbLeaseRenewed(lease_id=lease_id, error=error_to_pb(renewed))
    return pb.PbLeaseRenewed(lease_id=lease_id, expiration_time=renewed)


def renewed_from_pb(message: pb.PbLeaseRenewed) -> int | FlussTieringError:
    """The new expiration time of one lease, or why it has none."""
    return error_from_pb(message.error) if message.HasField("error") else message.expiration_time


def drop_to_pb(drop: LeaseDrop) -> pb.DropKvSnapshotLeaseResponse:
    """The answer to dropping a lease."""
    return pb.DropKvSnapshotLeaseResponse(dropped=drop is LeaseDrop.DROPPED, stale_attempt=drop is LeaseDrop.STALE)


def drop_from_pb(message: pb.DropKvSnapshotLeaseResponse) -> LeaseDrop:
    """The answer to dropping a lease."""
    if message.stale_attempt:
        return LeaseDrop.STALE
    return LeaseDrop.DROPPED if message.dropped else LeaseDrop.UNKNOWN


def lease_to_pb(lease: KvSnapshotLease) -> pb.PbKvSnapshotLease:
    """A lease as it stands."""
    return pb.PbKvSnapshotLease(
        lease_id=lease.lease_id,
        acquired_time=lease.acquired_time,
        expiration_time=lease.expiration_time,
        attempt_token=lease.attempt_token,
        snapshots=snapshots_to_pb(lease.snapshots),
    )


def lease_from_pb(message: pb.PbKvSnapshotLease) -> KvSnapshotLease:
    """A lease as it stands."""
    return KvSnapshotLease(
        lease_id=message.lease_id,
        acquired_time=message.acquired_time,
        expiration_time=message.expiration_time,
        attempt_token=message.attempt_token,
        snapshots=snapshots_from_pb(message.snapshots),
    )
