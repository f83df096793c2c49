"""Conversions between KV snapshot leases and their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.wire.buckets import bucket_of_table
from fluss_tiering.wire.checks import not_negative
from fluss_tiering.wire.errors import error_from_pb, error_to_pb
from fluss_tiering.wire.fields import SharedFields

_LEASE: Final = SharedFields(KvSnapshotLease, pb.PbKvSnapshotLease, "snapshots")


def snapshots_to_pb(snapshots: Mapping[TableBucket, int]) -> list[pb.PbKvSnapshotLeaseForTable]:
    """Return the messages of KV snapshots (bucket -> snapshot id), one for each table."""
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
    """Return the KV snapshots (bucket -> snapshot id) of the messages of several tables.

    Raises:
        FlussTieringError: INVALID_REQUEST if an id is negative or a bucket is named twice.
    """
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
    """Return the message of the answer to an acquire."""
    return pb.AcquireKvSnapshotLeaseResponse(
        unavailable_snapshots=snapshots_to_pb(acquired.unavailable_snapshots),
        attempt_token=acquired.attempt_token,
        expiration_time=acquired.expiration_time,
    )


def acquired_from_pb(lease_id: str, message: pb.AcquireKvSnapshotLeaseResponse) -> AcquiredLease:
    """Return the answer to an acquire."""
    return AcquiredLease(
        lease_id=lease_id,
        attempt_token=message.attempt_token,
        expiration_time=message.expiration_time,
        unavailable_snapshots=snapshots_from_pb(message.unavailable_snapshots),
    )


def renewed_to_pb(lease_id: str, renewed: int | FlussTieringError) -> pb.PbLeaseRenewed:
    """Return the message of a lease's new expiration time, or of the error that says why it was not renewed."""
    if isinstance(renewed, FlussTieringError):
        return pb.PbLeaseRenewed(lease_id=lease_id, error=error_to_pb(renewed))
    return pb.PbLeaseRenewed(lease_id=lease_id, expiration_time=renewed)


def renewed_from_pb(message: pb.PbLeaseRenewed) -> int | FlussTieringError:
    """Return a lease's new expiration time, or the error that says why it was not renewed."""
    return error_from_pb(message.error) if message.HasField("error") else message.expiration_time


def drop_to_pb(drop: LeaseDrop) -> pb.DropKvSnapshotLeaseResponse:
    """Return the message of the answer to dropping a lease."""
    return pb.DropKvSnapshotLeaseResponse(dropped=drop is LeaseDrop.DROPPED, stale_attempt=drop is LeaseDrop.STALE)


def drop_from_pb(message: pb.DropKvSnapshotLeaseResponse) -> LeaseDrop:
    """Return the answer to dropping a lease."""
    if message.stale_attempt:
        return LeaseDrop.STALE
    return LeaseDrop.DROPPED if message.dropped else LeaseDrop.UNKNOWN


def lease_to_pb(lease: KvSnapshotLease) -> pb.PbKvSnapshotLease:
    """Return the message of a lease."""
    return pb.PbKvSnapshotLease(snapshots=snapshots_to_pb(lease.snapshots), **_LEASE.of_value(lease))


def lease_from_pb(message: pb.PbKvSnapshotLease) -> KvSnapshotLease:
    """Return the lease of a message."""
    return KvSnapshotLease(snapshots=snapshots_from_pb(message.snapshots), **_LEASE.of_message(message))
