"""The messages keep Fluss's names and field numbers, what we add starts at 100, and errors survive the wire."""

from __future__ import annotations

import grpc
import pytest

from cases import cases
from fluss_tiering.api.v1 import common_pb2
from fluss_tiering.api.v1 import kv_scan_pb2 as pb
from fluss_tiering.api.v1 import kv_snapshot_leases_pb2 as leases_pb2
from fluss_tiering.api.v1 import lake_tiering_pb2 as tiering_pb2
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

FLUSS: dict[type, str] = {
    common_pb2.PbTablePath: "database_name table_name",
    leases_pb2.AcquireKvSnapshotLeaseRequest: "lease_id lease_duration_ms snapshots_to_lease",
    leases_pb2.AcquireKvSnapshotLeaseResponse: "unavailable_snapshots",
    leases_pb2.DropKvSnapshotLeaseRequest: "lease_id",
    leases_pb2.PbKvSnapshotLeaseForBucket: "partition_id bucket_id snapshot_id",
    leases_pb2.PbKvSnapshotLeaseForTable: "table_id bucket_snapshots",
    leases_pb2.ReleaseKvSnapshotLeaseRequest: "lease_id buckets_to_release",
    pb.PbScanReqForBucket: "table_id partition_id bucket_id limit",
    pb.ScanKvRequest: "scanner_id bucket_scan_req call_seq_id batch_size_bytes close_scanner",
    pb.ScanKvResponse: "_ _ scanner_id has_more_results records log_offset",
    tiering_pb2.CommitLakeTableSnapshotRequest: "tables_req lake_table_snapshot_metadata",
    tiering_pb2.LakeTieringHeartbeatRequest: (
        "tiering_tables finished_tables failed_tables request_table force_finished_tables"
    ),
    tiering_pb2.LakeTieringHeartbeatResponse: (
        "coordinator_epoch tiering_table tiering_table_resp finished_table_resp failed_table_resp"
    ),
    tiering_pb2.ListTieringStatusesRequest: "table_path",
    tiering_pb2.ListTieringStatusesResponse: "tiering_statuses",
    tiering_pb2.PbHeartbeatReqForTable: "table_id coordinator_epoch tiering_epoch error_message",
    tiering_pb2.PbLakeTableSnapshotMetadata: (
        "table_id snapshot_id tiered_bucket_offsets_file_path readable_bucket_offsets_file_path"
        " earliest_snapshot_id_to_keep"
    ),
    tiering_pb2.PbTableOffsets: "table_id table_path bucket_offsets",
    tiering_pb2.PbTableTieringStatus: "table_path status tiering_epoch last_tiered_time last_error last_error_time",
    tiering_pb2.PrepareLakeTableSnapshotRequest: "bucket_offsets ignore_previous_table_offsets",
}
"""The fields of Fluss's messages in the order of their numbers, from 1 on; `_` stands for a number without a field."""
SCANS = {pb.PbScanReqForBucket, pb.ScanKvRequest, pb.ScanKvResponse}


@cases(("message", "names"), FLUSS.items())
def test_fields_are_those_of_fluss(message: type, names: str) -> None:  # S17
    numbers = {field.name: field.number for field in message.DESCRIPTOR.fields}
    expected = {name: number for number, name in enumerate(names.split(), start=1) if name != "_"}
    # Messages of scans have no fields of our own.
    of_fluss = numbers if message in SCANS else {name: number for name, number in numbers.items() if number < 100}
    assert of_fluss == expected


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
