"""Conversions between the offsets of buckets and their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.model.table import BucketInfo, TableBucket, TableInfo, TablePath
from fluss_tiering.wire.buckets import bucket_of_table
from fluss_tiering.wire.kv_snapshots import kv_snapshot_from_pb, kv_snapshot_to_pb
from fluss_tiering.wire.tables import path_from_pb, path_to_pb


def buckets_to_pb(table: TableInfo, buckets: Iterable[BucketInfo]) -> tables_pb2.PbTableBuckets:
    """Return the message of a table's buckets."""
    return tables_pb2.PbTableBuckets(
        table_id=table.table_id,
        table_path=path_to_pb(table.path),
        buckets=[
            tables_pb2.PbBucketInfo(
                partition_id=info.bucket.partition_id,
                bucket_id=info.bucket.bucket,
                log_start_offset=info.log_start_offset,
                log_end_offset=info.log_end_offset,
                log_size_bytes=info.log_size_bytes,
                latest_kv_snapshot=None
                if info.latest_kv_snapshot is None
                else kv_snapshot_to_pb(info.latest_kv_snapshot),
                partition_values=info.partition_values,
            )
            for info in buckets
        ],
    )


def buckets_from_pb(message: tables_pb2.PbTableBuckets) -> tuple[TablePath, list[BucketInfo]]:
    """Return a table's path and its buckets."""
    return path_from_pb(message.table_path), [
        BucketInfo(
            bucket=bucket_of_table(message.table_id, info),
            log_start_offset=info.log_start_offset,
            log_end_offset=info.log_end_offset,
            log_size_bytes=info.log_size_bytes,
            latest_kv_snapshot=kv_snapshot_from_pb(message.table_id, info.latest_kv_snapshot)
            if info.HasField("latest_kv_snapshot")
            else None,
            partition_values=tuple(info.partition_values),
        )
        for info in message.buckets
    ]


def offsets_to_pb(offsets: Mapping[TableBucket, int]) -> list[tables_pb2.PbBucketOffset]:
    """Return the messages of the log end offsets of one table's buckets with which a write is acknowledged."""
    return [
        tables_pb2.PbBucketOffset(partition_id=bucket.partition_id, bucket_id=bucket.bucket, offset=offset)
        for bucket, offset in offsets.items()
    ]
