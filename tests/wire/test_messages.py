"""The messages keep Fluss's names and field numbers; what we add starts at 100."""

from __future__ import annotations

from cases import cases
from fluss_tiering.api.v1 import common_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2

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
