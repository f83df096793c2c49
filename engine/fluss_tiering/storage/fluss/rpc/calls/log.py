"""The logs of buckets: how far they reach, and their batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from fluss_tiering.api.fluss.v1 import log_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, Leader
from fluss_tiering.storage.fluss.rpc.errors import raise_for

_FROM_CLIENT = -1


class OffsetType(IntEnum):
    """Which end of a log (`ListOffsetsParam`)."""

    EARLIEST = 0
    LATEST = 1


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment of a log that is kept in the remote folder, [start_offset, end_offset).

    Attributes:
        path: of the file with its batches, as the cluster knows it.
    """

    path: str
    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class FetchedLog:
    """What a leader has of a log from an offset on.

    Attributes:
        records: whole log batches, the first of which may begin before the offset asked for; perhaps none.
        high_watermark: the offset up to which the log is safe, exclusive.
        remote_segments: where the log from that offset on is to be read instead; empty when `records` has it.
        first_position: of the batch with the offset asked for, in the first of these segments.
    """

    records: bytes
    high_watermark: int
    remote_segments: Sequence[RemoteSegment] = ()
    first_position: int = 0


def log_offset(path: TablePath, bucket: TableBucket, which: OffsetType) -> Call[log_pb2.ListOffsetsResponse, int]:
    """The offset of a log's start, or of its end (exclusive; the high watermark)."""
    return Call(
        ApiKey.LIST_OFFSETS,
        _offsets_request([bucket], which),
        log_pb2.ListOffsetsResponse,
        lambda response: _offset(response, bucket),
        Leader(path, bucket),
    )


def log_offsets_of(
    path: TablePath, buckets: Sequence[TableBucket], which: OffsetType
) -> Call[log_pb2.ListOffsetsResponse, dict[TableBucket, int]]:
    """`log_offset` of buckets of one partition that one server leads; without those that it has an error for."""
    return Call(
        ApiKey.LIST_OFFSETS,
        _offsets_request(buckets, which),
        log_pb2.ListOffsetsResponse,
        lambda response: {
            replace(buckets[0], bucket=each.bucket_id): each.offset
            for each in response.buckets_resp
            if each.error_code == 0
        },
        Leader(path, buckets[0]),
    )


def fetch_log(
    path: TablePath,
    bucket: TableBucket,
    offset: int,
    *,
    max_bytes: int = 8 << 20,
    projection: Sequence[int] | None = None,
) -> Call[log_pb2.FetchLogResponse, FetchedLog]:
    """The log of a bucket from an offset on.

    Args:
        path: of the bucket's table.
        bucket: of the table.
        offset: that the first batch holds.
        max_bytes: of batches; a first one that is larger comes whole all the same.
        projection: indexes of columns, ascending; None for all. Batches then hold these columns alone, under the
            checksum of the whole ones. Fluss cuts rightly only batches that are compressed as the table's option says
            (`FileLogProjection`).

    Raises LOG_OFFSET_OUT_OF_RANGE beyond the end, or before what is kept; INVALID_COLUMN_PROJECTION for a column that
    one of the batches has not, being from before it was added.
    """
    request = log_pb2.FetchLogRequest(
        follower_server_id=_FROM_CLIENT,
        max_bytes=max_bytes,
        tables_req=[
            log_pb2.PbFetchLogReqForTable(
                table_id=bucket.table_id,
                projection_pushdown_enabled=projection is not None,
                projected_fields=projection,
                buckets_req=[
                    log_pb2.PbFetchLogReqForBucket(
                        partition_id=bucket.partition_id,
                        bucket_id=bucket.bucket,
                        fetch_offset=offset,
                        max_fetch_bytes=max_bytes,
                    )
                ],
            )
        ],
        max_wait_ms=0,
    )
    return Call(
        ApiKey.FETCH_LOG,
        request,
        log_pb2.FetchLogResponse,
        lambda response: _fetched(response, bucket),
        Leader(path, bucket),
    )


def _offsets_request(buckets: Sequence[TableBucket], which: OffsetType) -> log_pb2.ListOffsetsRequest:
    return log_pb2.ListOffsetsRequest(
        follower_server_id=_FROM_CLIENT,
        offset_type=which,
        table_id=buckets[0].table_id,
        partition_id=buckets[0].partition_id,
        bucket_id=[bucket.bucket for bucket in buckets],
    )


def _offset(response: log_pb2.ListOffsetsResponse, bucket: TableBucket) -> int:
    for each in response.buckets_resp:
        if each.bucket_id == bucket.bucket:
            raise_for(each.error_code, each.error_message, f"the offsets of {bucket}")
            return each.offset
    raise _unanswered("the offsets", bucket)


def _fetched(response: log_pb2.FetchLogResponse, bucket: TableBucket) -> FetchedLog:
    for each in (each for table in response.tables_resp for each in table.buckets_resp):
        if each.bucket_id != bucket.bucket:
            continue
        raise_for(each.error_code, each.error_message, f"the log of {bucket}")
        remote = each.remote_log_fetch_info
        return FetchedLog(
            each.records,
            each.high_watermark,
            tuple(_remote_segment(remote.remote_log_tablet_dir, segment) for segment in remote.remote_log_segments),
            remote.first_start_pos,
        )
    raise _unanswered("the log", bucket)


def _remote_segment(folder: str, segment: log_pb2.PbRemoteLogSegment) -> RemoteSegment:
    # The start offset has 20 digits (Fluss's `FlussPaths.filenamePrefixFromOffset`).
    path = f"{folder}/{segment.remote_log_segment_id}/{segment.remote_log_start_offset:020d}.log"
    return RemoteSegment(
        path, segment.remote_log_start_offset, segment.remote_log_end_offset, segment.segment_size_in_bytes
    )


def _unanswered(what: str, bucket: TableBucket) -> FlussTieringError:
    return FlussTieringError(ErrorCode.CORRUPT_DATA, f"Fluss's answer says nothing of {what} of {bucket}")
