"""Conversions between KV snapshots and their messages."""

from __future__ import annotations

from collections.abc import Sequence

from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.model.table import KvSnapshot, TableBucket
from fluss_tiering.wire.buckets import bucket_from_pb, bucket_of_table
from fluss_tiering.wire.checks import not_negative


def kv_snapshot_to_pb(snapshot: KvSnapshot) -> tables_pb2.PbKvSnapshot:
    """Return the message of a KV snapshot. It has no table id, because the outer message has it."""
    return tables_pb2.PbKvSnapshot(
        partition_id=snapshot.bucket.partition_id,
        bucket_id=snapshot.bucket.bucket,
        snapshot_id=snapshot.snapshot_id,
        log_offset=snapshot.log_offset,
        row_count=snapshot.row_count,
        size_bytes=snapshot.size_bytes,
        path=snapshot.path,
        split_keys=snapshot.split_keys,
    )


def kv_snapshot_from_pb(table_id: int, message: tables_pb2.PbKvSnapshot) -> KvSnapshot:
    """Return the KV snapshot of a table that a message describes."""
    return KvSnapshot(
        bucket=bucket_of_table(table_id, message),
        snapshot_id=message.snapshot_id,
        log_offset=message.log_offset,
        row_count=message.row_count,
        size_bytes=message.size_bytes,
        path=message.path,
        split_keys=tuple(message.split_keys),
    )


def snapshot_ref_to_pb(bucket: TableBucket, snapshot_id: int) -> tables_pb2.PbKvSnapshotRef:
    """Return the message that names a KV snapshot."""
    return tables_pb2.PbKvSnapshotRef(
        table_id=bucket.table_id,
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket,
        snapshot_id=snapshot_id,
    )


def snapshot_ref_from_pb(message: tables_pb2.PbKvSnapshotRef) -> tuple[TableBucket, int]:
    """Return the bucket and the snapshot id of the KV snapshot that a message names.

    Raises:
        FlussTieringError: INVALID_REQUEST if an id is negative.
    """
    return bucket_from_pb(message), not_negative(message, "snapshot_id", message.snapshot_id)


def taken_snapshots_to_pb(table_id: int, snapshots: Sequence[KvSnapshot]) -> tables_pb2.PbTableKvSnapshots:
    """Return the message of the KV snapshots that were taken of a table."""
    return tables_pb2.PbTableKvSnapshots(
        table_id=table_id, snapshots=[kv_snapshot_to_pb(snapshot) for snapshot in snapshots]
    )
