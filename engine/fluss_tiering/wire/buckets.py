"""Conversions between buckets, their offsets and KV snapshots, and their messages.

A message names a bucket by its partition id and bucket id. The table's id is in the same message or in an outer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from fluss_tiering.api.v1 import common_pb2, kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket, TableInfo, TablePath
from fluss_tiering.wire.checks import not_negative
from fluss_tiering.wire.fields import SharedFields
from fluss_tiering.wire.tables import path_from_pb, path_to_pb

FullBucketMessage: TypeAlias = common_pb2.PbTableBucket | tables_pb2.PbKvSnapshotRef | kv_scan_pb2.PbScanReqForBucket
"""A message that names a bucket with its table's id."""

BucketMessage: TypeAlias = (
    FullBucketMessage
    | kv_snapshot_leases_pb2.PbKvSnapshotLeaseForBucket
    | lake_tiering_pb2.PbBucketLogEndOffset
    | lake_tiering_pb2.PbLakeSnapshotForBucket
    | tables_pb2.PbBucketInfo
    | tables_pb2.PbKvSnapshot
)

_INFO: Final = SharedFields(BucketInfo, tables_pb2.PbBucketInfo, "bucket", "latest_kv_snapshot", "partition_values")
_SNAPSHOT: Final = SharedFields(KvSnapshot, tables_pb2.PbKvSnapshot, "bucket", "split_keys")


def bucket_to_pb(bucket: TableBucket) -> common_pb2.PbTableBucket:
    """Return the message of a bucket."""
    return common_pb2.PbTableBucket(table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket)


def bucket_from_pb(message: FullBucketMessage) -> TableBucket:
    """Return the bucket that a message names with its table's id.

    Raises:
        FlussTieringError: INVALID_REQUEST if an id is negative.
    """
    return bucket_of_table(not_negative(message, "table_id", message.table_id), message)


def bucket_of_table(table_id: int, message: BucketMessage) -> TableBucket:
    """Return the bucket of a table that a message names.

    Raises:
        FlussTieringError: INVALID_REQUEST if an id is negative.
    """
    return TableBucket(
        table_id=table_id,
        bucket=not_negative(message, "bucket_id", message.bucket_id),
        partition_id=not_negative(message, "partition_id", message.partition_id)
        if message.HasField("partition_id")
        else None,
    )


def buckets_to_pb(table: TableInfo, buckets: Iterable[BucketInfo]) -> tables_pb2.PbTableBuckets:
    """Return the message of a table's buckets."""
    return tables_pb2.PbTableBuckets(
        table_id=table.table_id,
        table_path=path_to_pb(table.path),
        buckets=[
            tables_pb2.PbBucketInfo(
                partition_id=info.bucket.partition_id,
                bucket_id=info.bucket.bucket,
                latest_kv_snapshot=None
                if info.latest_kv_snapshot is None
                else kv_snapshot_to_pb(info.latest_kv_snapshot),
                partition_values=info.partition_values,
                **_INFO.of_value(info),
            )
            for info in buckets
        ],
    )


def buckets_from_pb(message: tables_pb2.PbTableBuckets) -> tuple[TablePath, list[BucketInfo]]:
    """Return a table's path and its buckets."""
    return path_from_pb(message.table_path), [
        BucketInfo(
            bucket=bucket_of_table(message.table_id, info),
            latest_kv_snapshot=kv_snapshot_from_pb(message.table_id, info.latest_kv_snapshot)
            if info.HasField("latest_kv_snapshot")
            else None,
            partition_values=tuple(info.partition_values),
            **_INFO.of_message(info),
        )
        for info in message.buckets
    ]


def offsets_to_pb(offsets: Mapping[TableBucket, int]) -> list[tables_pb2.PbBucketOffset]:
    """Return the messages of the log end offsets of one table's buckets with which a write is acknowledged."""
    return [
        tables_pb2.PbBucketOffset(partition_id=bucket.partition_id, bucket_id=bucket.bucket, offset=offset)
        for bucket, offset in offsets.items()
    ]


def kv_snapshot_to_pb(snapshot: KvSnapshot) -> tables_pb2.PbKvSnapshot:
    """Return the message of a KV snapshot. It has no table id, because the outer message has it."""
    return tables_pb2.PbKvSnapshot(
        partition_id=snapshot.bucket.partition_id,
        bucket_id=snapshot.bucket.bucket,
        split_keys=snapshot.split_keys,
        **_SNAPSHOT.of_value(snapshot),
    )


def kv_snapshot_from_pb(table_id: int, message: tables_pb2.PbKvSnapshot) -> KvSnapshot:
    """Return the KV snapshot of a table that a message describes."""
    return KvSnapshot(
        bucket=bucket_of_table(table_id, message),
        split_keys=tuple(message.split_keys),
        **_SNAPSHOT.of_message(message),
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
