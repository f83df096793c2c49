"""Conversions between the calls of scans of primary-key tables and their messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fluss_tiering.api.v1 import kv_scan_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.wire.buckets import bucket_from_pb


@dataclass(frozen=True, slots=True)
class OpenScan:
    """A call that opens a scanner.

    Attributes:
        bucket: The bucket to scan.
        limit: The number of rows after which the scan ends; None for all rows.
        batch_size_bytes: The size of the rows that the first answer may have, in bytes.
    """

    bucket: TableBucket
    limit: int | None
    batch_size_bytes: int


@dataclass(frozen=True, slots=True)
class ContinueScan:
    """A call for a scanner's next batch, or for its last batch again.

    Attributes:
        call_seq_id: The number of the call: one more than in the last call, or the same for the last batch again.
        batch_size_bytes: The size of the rows that the answer may have, in bytes.
    """

    scanner_id: bytes
    call_seq_id: int
    batch_size_bytes: int


@dataclass(frozen=True, slots=True)
class CloseScan:
    """A call that closes a scanner."""

    scanner_id: bytes


ScanCall: TypeAlias = OpenScan | ContinueScan | CloseScan


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """The answer to a call that opens or continues a scan.

    Attributes:
        scanner_id: The id of the scanner; None if the bucket has no rows, so that no scanner was opened.
        has_more: Whether more rows follow.
        arrow_ipc: The rows as they are stored, in an Arrow IPC stream with one column `value` of type binary.
        log_offset: The offset up to which the bucket's log is in the scan (exclusive). Only the first answer has it;
            it is None in all others.
    """

    scanner_id: bytes | None
    has_more: bool
    arrow_ipc: bytes
    log_offset: int | None


def call_to_pb(call: ScanCall) -> pb.ScanKvRequest:
    """Return the message of a call."""
    match call:
        case OpenScan(bucket, limit, batch_size_bytes):
            return pb.ScanKvRequest(
                bucket_scan_req=pb.PbScanReqForBucket(
                    table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket, limit=limit
                ),
                batch_size_bytes=batch_size_bytes,
            )
        case ContinueScan(scanner_id, call_seq_id, batch_size_bytes):
            return pb.ScanKvRequest(scanner_id=scanner_id, call_seq_id=call_seq_id, batch_size_bytes=batch_size_bytes)
        case CloseScan(scanner_id):
            return pb.ScanKvRequest(scanner_id=scanner_id, close_scanner=True)


def call_from_pb(message: pb.ScanKvRequest) -> ScanCall:
    """Return the call of a message.

    The message is checked before its scanner is looked up.

    Raises:
        FlussTieringError: INVALID_SCAN_REQUEST if the fields of the message contradict each other or one is not valid;
            INVALID_REQUEST if an id is negative.
    """
    opens, continues = message.HasField("bucket_scan_req"), message.HasField("scanner_id")
    if opens == continues:
        raise _invalid(
            f"{'both' if opens else 'neither'} of scanner_id and bucket_scan_req set: expected one of them, "
            "bucket_scan_req to open a scanner or scanner_id to continue with one"
        )
    if message.close_scanner:
        if opens:
            raise _invalid("close_scanner set together with bucket_scan_req: expected it together with scanner_id")
        return CloseScan(message.scanner_id)
    if message.batch_size_bytes <= 0:
        raise _invalid(f"batch_size_bytes {message.batch_size_bytes}: expected a number above 0, for example 4194304")
    if continues:
        return ContinueScan(message.scanner_id, message.call_seq_id, message.batch_size_bytes)
    if message.call_seq_id != 0:
        raise _invalid(f"call_seq_id {message.call_seq_id} on opening a scanner: expected 0")
    opened = message.bucket_scan_req
    limit = opened.limit if opened.HasField("limit") and opened.limit > 0 else None
    return OpenScan(bucket_from_pb(opened), limit, message.batch_size_bytes)


def rows_to_pb(rows: ScannedRows) -> pb.ScanKvResponse:
    """Return the message of an answer."""
    return pb.ScanKvResponse(
        scanner_id=rows.scanner_id,
        has_more_results=rows.has_more,
        records=rows.arrow_ipc,
        log_offset=rows.log_offset,
    )


def rows_from_pb(message: pb.ScanKvResponse) -> ScannedRows:
    """Return the answer of a message."""
    return ScannedRows(
        scanner_id=message.scanner_id if message.HasField("scanner_id") else None,
        has_more=message.has_more_results,
        arrow_ipc=message.records,
        log_offset=message.log_offset if message.HasField("log_offset") else None,
    )


def _invalid(what: str) -> FlussTieringError:
    return FlussTieringError(ErrorCode.INVALID_SCAN_REQUEST, f"ScanKvRequest has {what}")
