"""Calls and answers of scans as messages, with Fluss's names and field numbers."""

from __future__ import annotations

import pytest

from cases import cases
from fluss_tiering.api.v1 import kv_scan_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.wire.kv_scan import (
    CloseScan,
    ContinueScan,
    OpenScan,
    ScanCall,
    ScannedRows,
    call_from_pb,
    call_to_pb,
    rows_from_pb,
    rows_to_pb,
)


@cases(
    "call",
    [
        OpenScan(TableBucket(3, 1), None, 4 << 20),
        OpenScan(TableBucket(3, 0, partition_id=0), 7, 1),
        ContinueScan(b"id", 12, 1 << 20),
        CloseScan(b"id"),
    ],
)
def test_calls_come_back_as_they_were(call: ScanCall) -> None:
    assert call_from_pb(pb.ScanKvRequest.FromString(call_to_pb(call).SerializeToString())) == call


@pytest.mark.parametrize(
    "rows",
    [
        ScannedRows(None, has_more=False, arrow_ipc=b"", log_offset=0),
        ScannedRows(b"id", has_more=True, arrow_ipc=b"rows", log_offset=5),
        ScannedRows(b"id", has_more=False, arrow_ipc=b"rows", log_offset=None),
    ],
)
def test_answers_come_back_as_they_were(rows: ScannedRows) -> None:  # K4, K5
    assert rows_from_pb(pb.ScanKvResponse.FromString(rows_to_pb(rows).SerializeToString())) == rows


@pytest.mark.parametrize("limit", [0, -1, -(2**63)])
def test_a_limit_that_is_none_is_unlimited(limit: int) -> None:  # K9
    message = pb.ScanKvRequest(bucket_scan_req={"table_id": 1, "limit": limit}, batch_size_bytes=1)
    assert call_from_pb(message) == OpenScan(TableBucket(1, 0), None, 1)


@cases(
    ("message", "named"),
    [
        (pb.ScanKvRequest(batch_size_bytes=1), "neither"),  # K8
        (pb.ScanKvRequest(scanner_id=b"", bucket_scan_req={}, batch_size_bytes=1), "both"),  # K8
        (pb.ScanKvRequest(bucket_scan_req={}, close_scanner=True), "close_scanner"),  # K8
        (pb.ScanKvRequest(bucket_scan_req={}), "batch_size_bytes 0"),  # K7
        (pb.ScanKvRequest(scanner_id=b"x", batch_size_bytes=-3), "batch_size_bytes -3"),  # K7
        (pb.ScanKvRequest(bucket_scan_req={}, batch_size_bytes=1, call_seq_id=2), "call_seq_id 2"),  # K6
    ],
)
def test_calls_that_cannot_be_meant_name_what_is_wrong(message: pb.ScanKvRequest, named: str) -> None:  # K6, K7, K8
    with pytest.raises(FlussTieringError, match=named) as refused:
        call_from_pb(message)
    assert refused.value.code is ErrorCode.INVALID_SCAN_REQUEST


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (pb.PbScanReqForBucket, {"table_id": 1, "partition_id": 2, "bucket_id": 3, "limit": 4}),
        (
            pb.ScanKvRequest,
            {"scanner_id": 1, "bucket_scan_req": 2, "call_seq_id": 3, "batch_size_bytes": 4, "close_scanner": 5},
        ),
        (pb.ScanKvResponse, {"scanner_id": 3, "has_more_results": 4, "records": 5, "log_offset": 6}),
    ],
)
def test_fields_are_numbered_as_in_fluss(message: type, numbers: dict[str, int]) -> None:
    assert {field.name: field.number for field in message.DESCRIPTOR.fields} == numbers
