"""Scans of primary-key tables <-> messages."""

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
        limit: rows of the whole scan; None for any number (K9).
    """

    bucket: TableBucket
    limit: int | None
    batch_size_bytes: int


@dataclass(frozen=True, slots=True)
class ContinueScan:
    """A call for a scanner's next batch, or for its last one again (K15)."""

    scanner_id: bytes
    call_seq_id: int
    batch_size_bytes: int


@dataclass(frozen=True, slots=True)
class CloseScan:
    """A call that ends a scanner."""

    scanner_id: bytes


ScanCall: TypeAlias = OpenScan | ContinueScan | CloseScan


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """An answer.

    Attributes:
        scanner_id: None for a bucket without rows, which takes no scanner (K4).
        arrow_ipc: the rows as stored, as one Arrow IPC stream with the column value: binary; empty for none.
        log_offset: with the first answer: the log from here on is what the scan does not have (K5).
    """

    scanner_id: bytes | None
    has_more: bool
    arrow_ipc: bytes
    log_offset: int | None


def call_to_pb(call: ScanCall) -> pb.ScanKvRequest:
    """A call."""
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
    """A call; INVALID_SCAN_REQUEST for one that cannot be meant (K6-K8), before anything is looked up for it (K11)."""
    opens, continues = message.HasField("bucket_scan_req"), message.HasField("scanner_id")
    if opens == continues:
        raise _invalid(
            f"{'both' if opens else 'neither'} of scanner_id and bucket_scan_req set: expected one, "
            "the bucket to open a scanner or the id to go on with it"
        )
    if message.close_scanner:
        if opens:
            raise _invalid("close_scanner set together with bucket_scan_req: expected a scanner_id with it")
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
    """An answer."""
    return pb.ScanKvResponse(
        scanner_id=rows.scanner_id,
        has_more_results=rows.has_more,
        records=rows.arrow_ipc,
        log_offset=rows.log_offset,
    )


def rows_from_pb(message: pb.ScanKvResponse) -> ScannedRows:
    """An answer."""
    return ScannedRows(
        scanner_id=message.scanner_id if message.HasField("scanner_id") else None,
        has_more=message.has_more_results,
        arrow_ipc=message.records,
        log_offset=message.log_offset if message.HasField("log_offset") else None,
    )


def _invalid(what: str) -> FlussTieringError:
    return FlussTieringError(ErrorCode.INVALID_SCAN_REQUEST, f"ScanKvRequest has {what}")
