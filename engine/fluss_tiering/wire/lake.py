"""Lake snapshots and their log end offsets <-> messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket
from fluss_tiering.wire.buckets import bucket_of_table


def log_end_offsets_to_pb(offsets: Mapping[TableBucket, int]) -> list[pb.PbBucketLogEndOffset]:
    """Log end offsets of one table's buckets."""
    return [
        pb.PbBucketLogEndOffset(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_end_offset=offset)
        for bucket, offset in offsets.items()
    ]


def log_end_offsets_from_pb(table_id: int, messages: Iterable[pb.PbBucketLogEndOffset]) -> dict[TableBucket, int]:
    """Log end offsets of the table's buckets; a bucket of which nothing is in the lake (-1) is left out.

    Raises:
        FlussTieringError: INVALID_REQUEST for an offset below -1 or a bucket that is named twice.
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
    """A lake snapshot that the storage knows."""
    return pb.GetLakeSnapshotResponse(
        table_id=snapshot.table_id,
        snapshot_id=snapshot.snapshot_id,
        bucket_snapshots=[
            pb.PbLakeSnapshotForBucket(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_offset=offset)
            for bucket, offset in snapshot.log_end_offsets.items()
        ],
    )


def lake_snapshot_from_pb(message: pb.GetLakeSnapshotResponse) -> LakeSnapshot:
    """A lake snapshot that the storage knows."""
    return LakeSnapshot(
        table_id=message.table_id,
        snapshot_id=message.snapshot_id,
        log_end_offsets={
            bucket_of_table(message.table_id, bucket): bucket.log_offset
            for bucket in message.bucket_snapshots
            if bucket.HasField("log_offset")
        },
    )
