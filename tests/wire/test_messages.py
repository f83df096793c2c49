"""The messages keep Fluss's names and field numbers, what we add starts at 100, and errors survive the wire."""

from __future__ import annotations

import grpc
import pytest

from cases import cases
from fluss_tiering.api.v1 import common_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2
from fluss_tiering.api.v1 import kv_scan_pb2 as pb
from fluss_tiering.model.errors import GRPC_STATUS_NAMES, ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.wire.errors import (
    code_from_metadata,
    code_from_status,
    error_from_pb,
    error_to_pb,
    status_of,
    trailing_metadata_of,
)
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

FLUSS = [
    (common_pb2.PbTablePath, {"database_name": 1, "table_name": 2}),
    (lake_tiering_pb2.ListTieringStatusesRequest, {"table_path": 1}),
    (lake_tiering_pb2.ListTieringStatusesResponse, {"tiering_statuses": 1}),
    (
        lake_tiering_pb2.PbTableTieringStatus,
        {
            "table_path": 1,
            "status": 2,
            "tiering_epoch": 3,
            "last_tiered_time": 4,
            "last_error": 5,
            "last_error_time": 6,
        },
    ),
    (
        lake_tiering_pb2.LakeTieringHeartbeatRequest,
        {
            "tiering_tables": 1,
            "finished_tables": 2,
            "failed_tables": 3,
            "request_table": 4,
            "force_finished_tables": 5,
        },
    ),
    (
        lake_tiering_pb2.PbHeartbeatReqForTable,
        {"table_id": 1, "coordinator_epoch": 2, "tiering_epoch": 3, "error_message": 4},
    ),
    (
        lake_tiering_pb2.LakeTieringHeartbeatResponse,
        {
            "coordinator_epoch": 1,
            "tiering_table": 2,
            "tiering_table_resp": 3,
            "finished_table_resp": 4,
            "failed_table_resp": 5,
        },
    ),
    (
        kv_snapshot_leases_pb2.AcquireKvSnapshotLeaseRequest,
        {"lease_id": 1, "lease_duration_ms": 2, "snapshots_to_lease": 3},
    ),
    (kv_snapshot_leases_pb2.PbKvSnapshotLeaseForTable, {"table_id": 1, "bucket_snapshots": 2}),
    (kv_snapshot_leases_pb2.PbKvSnapshotLeaseForBucket, {"partition_id": 1, "bucket_id": 2, "snapshot_id": 3}),
    (kv_snapshot_leases_pb2.AcquireKvSnapshotLeaseResponse, {"unavailable_snapshots": 1}),
    (kv_snapshot_leases_pb2.ReleaseKvSnapshotLeaseRequest, {"lease_id": 1, "buckets_to_release": 2}),
    (kv_snapshot_leases_pb2.DropKvSnapshotLeaseRequest, {"lease_id": 1}),
    (
        lake_tiering_pb2.PrepareLakeTableSnapshotRequest,
        {"bucket_offsets": 1, "ignore_previous_table_offsets": 2},
    ),
    (lake_tiering_pb2.PbTableOffsets, {"table_id": 1, "table_path": 2, "bucket_offsets": 3}),
    (lake_tiering_pb2.CommitLakeTableSnapshotRequest, {"tables_req": 1, "lake_table_snapshot_metadata": 2}),
    (
        lake_tiering_pb2.PbLakeTableSnapshotMetadata,
        {
            "table_id": 1,
            "snapshot_id": 2,
            "tiered_bucket_offsets_file_path": 3,
            "readable_bucket_offsets_file_path": 4,
            "earliest_snapshot_id_to_keep": 5,
        },
    ),
]


@cases(("message", "fields"), FLUSS)
def test_fields_are_those_of_fluss(message: type, fields: dict[str, int]) -> None:  # S17
    numbers = {field.name: field.number for field in message.DESCRIPTOR.fields}
    assert {name: number for name, number in numbers.items() if number < 100} == fields


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


@cases("code", list(ErrorCode))
def test_every_code_has_a_status_and_comes_back(code: ErrorCode) -> None:
    assert status_of(code).name == GRPC_STATUS_NAMES[code]
    assert code_from_metadata(trailing_metadata_of(code)) is code
    assert error_from_pb(error_to_pb(FlussTieringError(code, "what"))).code is code


@cases("metadata", [None, (), (("content-type", "grpc"),), (("fluss-error-code", "OF_A_NEWER_SERVER"),)])
def test_no_known_code_is_none(metadata: tuple[tuple[str, str], ...] | None) -> None:
    assert code_from_metadata(metadata) is None


def test_an_unknown_code_of_one_part_is_unknown() -> None:
    error = error_from_pb(common_pb2.PbError(code="OF_A_NEWER_SERVER", message="what"))
    assert (error.code, error.message) == (ErrorCode.UNKNOWN, "what")


def test_statuses_without_a_code() -> None:
    assert code_from_status(grpc.StatusCode.UNAVAILABLE) is ErrorCode.UNAVAILABLE
    assert code_from_status(grpc.StatusCode.DEADLINE_EXCEEDED) is ErrorCode.UNAVAILABLE
    assert code_from_status(grpc.StatusCode.INVALID_ARGUMENT) is ErrorCode.INVALID_REQUEST
    assert code_from_status(grpc.StatusCode.RESOURCE_EXHAUSTED) is ErrorCode.INVALID_REQUEST
    assert code_from_status(grpc.StatusCode.ABORTED) is ErrorCode.UNKNOWN
