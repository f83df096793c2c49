"""Conversions between buckets and the messages that name them.

A message names a bucket by its partition id and bucket id. The table's id is in the same message or in an outer one.
"""

from __future__ import annotations

from typing import TypeAlias

from fluss_tiering.api.v1 import common_pb2, kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.model.table import TableBucket
from fluss_tiering.wire.checks import not_negative

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
