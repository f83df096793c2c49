"""Conversions between lake snapshots, with their log end offsets, and their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket
from fluss_tiering.wire.buckets import bucket_of_table


def log_end_offsets_to_pb(offsets: Mapping[TableBucket, int]) -> list[pb.PbBucketLogEndOffset]:
    """Return the messages of log end offsets of one table's buckets."""
    return [
        pb.PbBucketLogEndOffset(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_end_offset=offset)
        for bucket, offset in offsets.items()
    ]


def log_end_offsets_from_pb(table_id: int, messages: Iterable[pb.PbBucketLogEndOffset]) -> dict[TableBucket, int]:
    """Return the log end offsets of a table's buckets, without buckets that have nothing in the lake (-1).

    Raises:
        FlussTieringError: INVALID_REQUEST if an offset is below -1 or a bucket is named twice.
    """
    offsets: dict[TableBucket, int] = {}
    for message in messages:
        bucket = bucket_of_table(table_id, message)
        if bucket in offsets:
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{bucket} is named twice: expected one log end offset")
        if message.log_end_offset < -1:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{bucket}: log end offset {message.log_end_offset}, expected -1 (nothing in the lake) or more",
            )
        if message.log_end_offset >= 0:
            offsets[bucket] = message.log_end_offset
    return offsets


def lake_snapshot_to_pb(snapshot: LakeSnapshot) -> pb.GetLakeSnapshotResponse:
    """Return the message of a lake snapshot."""
    return pb.GetLakeSnapshotResponse(
        table_id=snapshot.table_id,
        snapshot_id=snapshot.snapshot_id,
        bucket_snapshots=[
            pb.PbLakeSnapshotForBucket(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_offset=offset)
            for bucket, offset in snapshot.log_end_offsets.items()
        ],
    )


def lake_snapshot_from_pb(message: pb.GetLakeSnapshotResponse) -> LakeSnapshot:
    """Return the lake snapshot of a message."""
    return LakeSnapshot(
        table_id=message.table_id,
        snapshot_id=message.snapshot_id,
        log_end_offsets={
            bucket_of_table(message.table_id, bucket): bucket.log_offset
            for bucket in message.bucket_snapshots
            if bucket.HasField("log_offset")
        },
    )
