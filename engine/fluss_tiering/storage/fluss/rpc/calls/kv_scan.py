"""Calls of a scan session, in which a bucket's leader gives the rows of the bucket as of one moment (SCAN_KV).

A server closes a session if a call of it is repeated, comes out of turn, or comes while another one is under way
(`ScannerManager`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fluss_tiering.api.fluss.v1 import kv_scan_pb2
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import BucketLeader, Call
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError, raise_for


@dataclass(frozen=True, slots=True, eq=False)
class SessionRows:
    """The next rows of a session.

    Attributes:
        scanner_id: The id of the session; None if the bucket has no rows, so that no session was opened.
        has_more: Whether more rows follow. If not, the server has closed the session.
        records: The rows in the format that `stored_values` reads; empty if there are none.
        log_offset: The offset up to which the log is in the session (exclusive); None in all answers but the first.
    """

    scanner_id: bytes | None
    has_more: bool
    records: bytes
    log_offset: int | None


ScanCall = Call[kv_scan_pb2.ScanKvResponse, SessionRows]


def open_session(path: TablePath, bucket: TableBucket, max_bytes: int) -> ScanCall:
    """Open a session, and ask for its first rows.

    Args:
        path: The path of the bucket's table.
        bucket: A bucket of a primary-key table.
        max_bytes: The size at which the answer ends, in bytes. The last row may exceed it.

    Raises:
        FlussServerError: TOO_MANY_SCANNERS if the bucket or the server has no room for another session;
            NON_PRIMARY_KEY_TABLE_EXCEPTION if the table has no primary key.
    """
    request = kv_scan_pb2.ScanKvRequest(
        bucket_scan_req=kv_scan_pb2.PbScanReqForBucket(
            table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket
        ),
        call_seq_id=0,
        batch_size_bytes=max_bytes,
    )
    return _call(path, bucket, request, lambda response: _rows(response, bucket))


def continue_session(
    path: TablePath, bucket: TableBucket, scanner_id: bytes, call_seq_id: int, max_bytes: int
) -> ScanCall:
    """Ask for a session's next rows. The number of the call is one more than that of the call before.

    An error that the server answers ends the session, so the client does not send the call again.

    Raises:
        FlussTieringError: SCANNER_EXPIRED or UNKNOWN_SCANNER_ID if the session has ended; INVALID_SCAN_REQUEST if the
            number is another one; NOT_LEADER_OR_FOLLOWER if the server no longer leads the bucket; STORAGE if it cannot
            read the rows.
    """
    request = kv_scan_pb2.ScanKvRequest(scanner_id=scanner_id, call_seq_id=call_seq_id, batch_size_bytes=max_bytes)
    return _call(path, bucket, request, lambda response: _continued(response, bucket))


def close_session(path: TablePath, bucket: TableBucket, scanner_id: bytes) -> ScanCall:
    """Close a session, or do nothing if the server does not know it."""
    request = kv_scan_pb2.ScanKvRequest(scanner_id=scanner_id, close_scanner=True)
    return _call(path, bucket, request, lambda response: _rows(response, bucket))


def _call(
    path: TablePath,
    bucket: TableBucket,
    request: kv_scan_pb2.ScanKvRequest,
    read: Callable[[kv_scan_pb2.ScanKvResponse], SessionRows],
) -> ScanCall:
    leader = BucketLeader(path, bucket)
    return Call(ApiKey.SCAN_KV, request, kv_scan_pb2.ScanKvResponse, read, leader, repeatable=False)


def _continued(response: kv_scan_pb2.ScanKvResponse, bucket: TableBucket) -> SessionRows:
    try:
        return _rows(response, bucket)
    except FlussServerError as error:
        raise FlussTieringError(error.code, error.message) from error


def _rows(response: kv_scan_pb2.ScanKvResponse, bucket: TableBucket) -> SessionRows:
    raise_for(response.error_code, response.error_message, f"the scan of {bucket}")
    return SessionRows(
        scanner_id=response.scanner_id if response.HasField("scanner_id") else None,
        has_more=response.has_more_results,
        records=response.records,
        log_offset=response.log_offset if response.HasField("log_offset") else None,
    )
