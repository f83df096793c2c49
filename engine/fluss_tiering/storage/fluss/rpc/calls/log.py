"""Calls for the logs of buckets: their offsets and their batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from fluss_tiering.api.fluss.v1 import log_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import BucketLeader, Call
from fluss_tiering.storage.fluss.rpc.errors import raise_for

_FROM_CLIENT = -1
_REMOTE_FIRST = 1


class OffsetType(IntEnum):
    """The end of a log that an offset is asked for (`ListOffsetsParam`)."""

    EARLIEST = 0
    LATEST = 1


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment of a log in the cluster's remote folder, with the offsets [start_offset, end_offset).

    Attributes:
        path: The path of the file with the batches, as the cluster knows it.
        start_offset: The first offset.
        end_offset: The offset after the last one.
        size_bytes: The size of the file.
    """

    path: str
    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class FetchedLog:
    """A leader's answer about the log from an offset on.

    Attributes:
        records: Whole log batches, perhaps none. The first batch may begin before the offset asked for.
        high_watermark: The offset up to which, exclusive, the log is safe.
        remote_segments: The segments that hold the log from that offset on; empty if `records` holds it.
        first_position: The position, in the first of these segments, of the batch with the offset asked for.
    """

    records: bytes
    high_watermark: int
    remote_segments: Sequence[RemoteSegment] = ()
    first_position: int = 0


def log_offset(path: TablePath, bucket: TableBucket, which: OffsetType) -> Call[log_pb2.ListOffsetsResponse, int]:
    """Ask for the first offset of a log, or for its end (exclusive; the high watermark)."""
    return Call(
        ApiKey.LIST_OFFSETS,
        _offsets_request([bucket], which),
        log_pb2.ListOffsetsResponse,
        lambda response: _offset(response, bucket),
        BucketLeader(path, bucket),
    )


def log_offsets_of(
    path: TablePath, buckets: Sequence[TableBucket], which: OffsetType
) -> Call[log_pb2.ListOffsetsResponse, dict[TableBucket, int]]:
    """Ask for the `log_offset` of several buckets of one partition that one server leads.

    The result lacks the buckets for which the server has an error.
    """
    return Call(
        ApiKey.LIST_OFFSETS,
        _offsets_request(buckets, which),
        log_pb2.ListOffsetsResponse,
        lambda response: {
            replace(buckets[0], bucket=each.bucket_id): each.offset
            for each in response.buckets_resp
            if each.error_code == 0
        },
        BucketLeader(path, buckets[0]),
    )


def fetch_log(
    path: TablePath,
    bucket: TableBucket,
    offset: int,
    *,
    max_bytes: int = 8 << 20,
    projection: Sequence[int] | None = None,
    remote_first: bool = False,
) -> Call[log_pb2.FetchLogResponse, FetchedLog]:
    """Ask for the log of a bucket from an offset on.

    Args:
        path: The path of the bucket's table.
        offset: The offset that the first batch shall hold.
        max_bytes: The size of all batches together; a first batch that is larger is sent whole nevertheless.
        projection: The indexes of the wanted columns, ascending; None for all. The batches then hold these columns
            only, and still have the checksum of the whole batch. Fluss cuts a batch correctly only if it is compressed
            as the table's option says (`FileLogProjection`).
        remote_first: Whether the leader shall name the remote segments that hold the log, though it has their records
            itself. Leaders of versions before 1.0 ignore it.

    Raises:
        FlussServerError: LOG_OFFSET_OUT_OF_RANGE_EXCEPTION if the offset is after the log's end or before its start;
            INVALID_COLUMN_PROJECTION if a batch is older than one of the columns.
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
        read_preference=_REMOTE_FIRST if remote_first else None,
    )
    return Call(
        ApiKey.FETCH_LOG,
        request,
        log_pb2.FetchLogResponse,
        lambda response: _fetched(response, bucket),
        BucketLeader(path, bucket),
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
    # The file name is the start offset with 20 digits (Fluss's `FlussPaths.filenamePrefixFromOffset`).
    path = f"{folder}/{segment.remote_log_segment_id}/{segment.remote_log_start_offset:020d}.log"
    return RemoteSegment(
        path, segment.remote_log_start_offset, segment.remote_log_end_offset, segment.segment_size_in_bytes
    )


def _unanswered(what: str, bucket: TableBucket) -> FlussTieringError:
    return FlussTieringError(ErrorCode.CORRUPT_DATA, f"Fluss's answer says nothing about {what} of {bucket}")
