"""Calls that write rows: each sends one encoded batch to one bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from google.protobuf.message import Message

from fluss_tiering.api.fluss.v1 import log_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import BucketLeader, Call
from fluss_tiering.storage.fluss.rpc.errors import raise_for

ResponseT = TypeVar("ResponseT", bound=Message)
ResultT = TypeVar("ResultT")

_FROM_ALL_IN_SYNC: Final = -1
_TIMEOUT_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class KvWritten:
    """What became of a KV batch.

    Attributes:
        log_end_offset: The log end offset after the batch.
        pressure: How hard-pressed the bucket's storage is, from 0 to 1. Fluss 0.9.1 never says more than 0.
    """

    log_end_offset: int
    pressure: float


def produce_log(
    path: TablePath, bucket: TableBucket, records: bytes, *, placed_among: int | None = None
) -> Call[log_pb2.ProduceLogResponse, int]:
    """Append a log batch (`formats.log.batch`) to a bucket of a log table. The result is its first record's offset.

    `placed_among` is the number of buckets by which the rows were placed, if the cluster told it.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; CORRUPT_DATA if Fluss finds no batch.
    """
    return _write(
        ApiKey.PRODUCE_LOG,
        log_pb2.ProduceLogRequest,
        log_pb2.ProduceLogResponse,
        _base_offset,
        leader=BucketLeader(path, bucket),
        records=records,
        placed_among=placed_among,
    )


def put_kv(
    path: TablePath,
    bucket: TableBucket,
    records: bytes,
    target_columns: Sequence[int] = (),
    *,
    placed_among: int | None = None,
) -> Call[log_pb2.PutKvResponse, KvWritten]:
    """Upsert and delete the rows of a KV batch (`kv_batch`) in a bucket of a primary-key table.

    Args:
        target_columns: The indexes of the columns of a partial update, with those of the key; none for all columns.
        placed_among: As in `produce_log`.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; TABLE_WITHOUT_PRIMARY_KEY if it has no primary
            key; CORRUPT_DATA if Fluss finds no batch.
    """
    return _write(
        ApiKey.PUT_KV,
        log_pb2.PutKvRequest,
        log_pb2.PutKvResponse,
        _kv_written,
        leader=BucketLeader(path, bucket),
        records=records,
        placed_among=placed_among,
        target_columns=target_columns,
    )


def _write(
    api: ApiKey,
    request: Callable[..., Message],
    response: type[ResponseT],
    read: Callable[[ResponseT, TableBucket], ResultT],
    *,
    leader: BucketLeader,
    records: bytes,
    placed_among: int | None,
    **others: Sequence[int],
) -> Call[ResponseT, ResultT]:
    """Make the call. Its two requests have the same fields but for those in `others`."""
    bucket = leader.bucket
    for_bucket = log_pb2.PbWriteReqForBucket(
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket,
        records=records,
        routing_bucket_count=placed_among,
    )
    return Call(
        api,
        request(
            acks=_FROM_ALL_IN_SYNC,
            table_id=bucket.table_id,
            timeout_ms=_TIMEOUT_MS,
            buckets_req=[for_bucket],
            **others,
        ),
        response,
        lambda answer: read(answer, bucket),
        leader,
        repeatable=False,
    )


def _base_offset(response: log_pb2.ProduceLogResponse, bucket: TableBucket) -> int:
    for each in response.buckets_resp:
        raise_for(each.error_code, each.error_message, f"a write to {bucket}")
        if each.base_offset < 0:
            # Fluss reports no error for bytes that are no batch.
            raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"Fluss found no log batch in a write to {bucket}")
        return each.base_offset
    raise _unanswered(bucket)


def _kv_written(response: log_pb2.PutKvResponse, bucket: TableBucket) -> KvWritten:
    for each in response.buckets_resp:
        raise_for(each.error_code, each.error_message, f"a write to {bucket}")
        return KvWritten(each.log_end_offset, each.pressure)
    raise _unanswered(bucket)


def _unanswered(bucket: TableBucket) -> FlussTieringError:
    return FlussTieringError(ErrorCode.CORRUPT_DATA, f"Fluss's answer says nothing about the write to {bucket}")
