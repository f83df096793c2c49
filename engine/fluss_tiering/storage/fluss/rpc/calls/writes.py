"""Writing rows: batches for one bucket, as encoded before."""

from __future__ import annotations

from typing import Final

from fluss_tiering.api.fluss.v1 import log_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, Leader
from fluss_tiering.storage.fluss.rpc.errors import raise_for

_FROM_ALL_IN_SYNC: Final = -1
_TIMEOUT_MS: Final = 20_000


def produce_log(path: TablePath, bucket: TableBucket, records: bytes) -> Call[log_pb2.ProduceLogResponse, int]:
    """Appends a log batch (`formats.log_batch`) to a log table's bucket; the offset of its first record.

    Raises TABLE_NOT_EXIST, CORRUPT_DATA.
    """
    return Call(
        ApiKey.PRODUCE_LOG,
        log_pb2.ProduceLogRequest(
            acks=_FROM_ALL_IN_SYNC,
            table_id=bucket.table_id,
            timeout_ms=_TIMEOUT_MS,
            buckets_req=[_for_bucket(bucket, records)],
        ),
        log_pb2.ProduceLogResponse,
        lambda response: _base_offset(response, bucket),
        Leader(path, bucket),
        repeatable=False,
    )


def put_kv(path: TablePath, bucket: TableBucket, records: bytes) -> Call[log_pb2.PutKvResponse, int]:
    """Upserts and deletes a KV batch (`kv_batch`) in a primary-key table's bucket; the log's end behind it.

    Raises TABLE_NOT_EXIST, TABLE_WITHOUT_PRIMARY_KEY, CORRUPT_DATA.
    """
    return Call(
        ApiKey.PUT_KV,
        log_pb2.PutKvRequest(
            acks=_FROM_ALL_IN_SYNC,
            table_id=bucket.table_id,
            timeout_ms=_TIMEOUT_MS,
            buckets_req=[_for_bucket(bucket, records)],
        ),
        log_pb2.PutKvResponse,
        lambda response: _log_end_offset(response, bucket),
        Leader(path, bucket),
        repeatable=False,
    )


def _for_bucket(bucket: TableBucket, records: bytes) -> log_pb2.PbWriteReqForBucket:
    return log_pb2.PbWriteReqForBucket(partition_id=bucket.partition_id, bucket_id=bucket.bucket, records=records)


def _base_offset(response: log_pb2.ProduceLogResponse, bucket: TableBucket) -> int:
    for each in response.buckets_resp:
        raise_for(each.error_code, each.error_message, f"a write to {bucket}")
        if each.base_offset < 0:
            # What it does not take for a batch, Fluss leaves without a word.
            raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"Fluss found no log batch in a write to {bucket}")
        return each.base_offset
    raise _unanswered(bucket)


def _log_end_offset(response: log_pb2.PutKvResponse, bucket: TableBucket) -> int:
    for each in response.buckets_resp:
        raise_for(each.error_code, each.error_message, f"a write to {bucket}")
        return each.log_end_offset
    raise _unanswered(bucket)


def _unanswered(bucket: TableBucket) -> FlussTieringError:
    return FlussTieringError(ErrorCode.CORRUPT_DATA, f"Fluss's answer says nothing of the write to {bucket}")
