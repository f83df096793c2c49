"""A request of each method about one table or lease, and the whole answer to a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa
from callers import METHODS
from google.protobuf.message import Message

from engine_support import SCHEMA, descriptor
from fluss_tiering.api.v1 import kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.api.v1.common_pb2 import PbTableBucket
from fluss_tiering.model.table import TablePath
from fluss_tiering.wire.tables import descriptor_to_pb, path_to_pb
from token_support import TokenServer


@dataclass(frozen=True)
class Named:
    """What requests name.

    Attributes:
        path: A table.
        table_id: The id of the table.
        lease_id: A lease of the table.
        epoch: A tiering epoch of the table.
        snapshot_id: A KV snapshot of the table.
        offsets_path: An offsets file of the table.
    """

    path: TablePath
    table_id: int
    lease_id: str
    epoch: int = 1
    snapshot_id: int = 0
    offsets_path: str = "nowhere"


@dataclass(frozen=True)
class Answer:
    """All that a caller hears: the serialized responses, and how the call ended."""

    responses: tuple[bytes, ...]
    status: grpc.StatusCode
    details: str
    metadata: tuple[tuple[str, str | bytes], ...]


def ask(server: TokenServer, who: str, name: str, request: Message, responses: int = 100) -> Answer:
    """Call a method with the token of a name, and return at most so many responses."""
    stream: Callable[..., Any] = server.channel.stream_stream(method(name))
    metadata = [("authorization", f"Bearer {server.tokens[who]}")]
    call = stream(iter([request.SerializeToString()]), metadata=metadata, timeout=30)
    heard: list[bytes] = []
    try:
        for response in call:
            heard.append(response)
            if len(heard) == responses:
                return Answer(tuple(heard), grpc.StatusCode.OK, "", ())
    except grpc.RpcError:
        pass
    finally:
        call.cancel()
    # Each call has an id of its own, which tells nothing.
    trailing = tuple(each for each in call.trailing_metadata() or () if each[0] != "fluss-tiering-request-id")
    return Answer(tuple(heard), call.code(), call.details(), trailing)


def method(name: str) -> str:
    """Return the path of a method."""
    return next(path for path in METHODS if path.endswith(f"/{name}"))


def rows() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"id": [7], "name": ["seven"]}, schema=SCHEMA)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def requests(of: Named) -> dict[str, list[Message]]:
    """Return requests of each method, by its name, in an order in which all of them can be answered."""
    path, bucket = path_to_pb(of.path), PbTableBucket(table_id=of.table_id, bucket_id=0)
    tiering, leases, tables = lake_tiering_pb2, kv_snapshot_leases_pb2, tables_pb2
    entry = tiering.PbHeartbeatReqForTable(table_id=of.table_id, tiering_epoch=of.epoch)
    other_epoch = tiering.PbHeartbeatReqForTable(table_id=of.table_id, tiering_epoch=of.epoch, coordinator_epoch=77)
    ends = [tiering.PbBucketLogEndOffset(bucket_id=0, log_end_offset=1)]
    pinned = leases.PbKvSnapshotLeaseForTable(
        table_id=of.table_id,
        bucket_snapshots=[leases.PbKvSnapshotLeaseForBucket(bucket_id=0, snapshot_id=of.snapshot_id)],
    )
    return {
        "DescribeStorage": [tables.DescribeStorageRequest()],
        "ListTables": [tables.ListTablesRequest(), tables.ListTablesRequest(database_name=of.path.database)],
        "GetTables": [tables.GetTablesRequest(table_paths=[path])],
        "CreateReadToken": [tables.CreateReadTokenRequest(table_path=path)],
        "ListBuckets": [tables.ListBucketsRequest(table_paths=[path])],
        "WriteRows": [tables.WriteRowsRequest(table_path=path, kind=tables.PB_WRITE_KIND_UPSERT, arrow_ipc=rows())],
        "TakeKvSnapshots": [tables.TakeKvSnapshotsRequest(table_paths=[path])],
        "GetKvSnapshotMetadata": [
            tables.GetKvSnapshotMetadataRequest(
                snapshots=[tables.PbKvSnapshotRef(table_id=of.table_id, bucket_id=0, snapshot_id=of.snapshot_id)]
            )
        ],
        "FetchLog": [tables.FetchLogRequest(bucket=bucket, start_offset=0, end_offset=1)],
        "FetchKvSnapshot": [tables.FetchKvSnapshotRequest(bucket=bucket, snapshot_id=of.snapshot_id)],
        "ScanKv": [
            kv_scan_pb2.ScanKvRequest(
                bucket_scan_req=kv_scan_pb2.PbScanReqForBucket(table_id=of.table_id, bucket_id=0),
                batch_size_bytes=1000,
            )
        ],
        "AcquireKvSnapshotLease": [
            leases.AcquireKvSnapshotLeaseRequest(
                lease_id=of.lease_id, lease_duration_ms=60_000, snapshots_to_lease=[pinned]
            )
        ],
        "RenewKvSnapshotLeases": [
            leases.RenewKvSnapshotLeasesRequest(
                renewals=[leases.PbLeaseRenewal(lease_id=of.lease_id, lease_duration_ms=60_000)]
            )
        ],
        "ListKvSnapshotLeases": [
            leases.ListKvSnapshotLeasesRequest(),
            leases.ListKvSnapshotLeasesRequest(lease_id=of.lease_id),
        ],
        "ClaimTables": [tiering.ClaimTablesRequest(table_paths=[path], lease_id="mine", driver="driver")],
        "LakeTieringHeartbeat": [
            tiering.LakeTieringHeartbeatRequest(tiering_tables=[entry]),
            tiering.LakeTieringHeartbeatRequest(tiering_tables=[other_epoch], failed_tables=[other_epoch]),
            tiering.LakeTieringHeartbeatRequest(
                maintained_tables=[tiering.PbLakeMaintenance(table_id=of.table_id, saved_files=1)]
            ),
        ],
        "PrepareLakeTableSnapshot": [
            tiering.PrepareLakeTableSnapshotRequest(
                bucket_offsets=[
                    tiering.PbTableOffsets(
                        table_id=of.table_id, table_path=path, bucket_offsets=ends, tiering_epoch=of.epoch
                    )
                ]
            )
        ],
        "CommitLakeTableSnapshot": [
            tiering.CommitLakeTableSnapshotRequest(
                tables_req=[
                    tiering.PbLakeTableSnapshotInfo(
                        table_id=of.table_id,
                        snapshot_id=5,
                        buckets_req=ends,
                        table_path=path,
                        tiering_epoch=of.epoch,
                        commit_id="commit",
                    )
                ],
                lake_table_snapshot_metadata=[
                    tiering.PbLakeTableSnapshotMetadata(
                        table_id=of.table_id, snapshot_id=5, tiered_bucket_offsets_file_path=of.offsets_path
                    )
                ],
            )
        ],
        "GetLakeSnapshot": [
            tiering.GetLakeSnapshotRequest(table_path=path),
            tiering.GetLakeSnapshotRequest(table_path=path, snapshot_id=5),
        ],
        "ListTieringStatuses": [
            tiering.ListTieringStatusesRequest(),
            tiering.ListTieringStatusesRequest(table_path=path),
        ],
        "WatchTieringStatuses": [
            tiering.WatchTieringStatusesRequest(),
            tiering.WatchTieringStatusesRequest(table_paths=[path]),
        ],
        "ListTieringRounds": [
            tiering.ListTieringRoundsRequest(),
            tiering.ListTieringRoundsRequest(table_path=path),
            tiering.ListTieringRoundsRequest(lease_id=of.lease_id),
        ],
        "GetLeaseOutcome": [tiering.GetLeaseOutcomeRequest(lease_id=of.lease_id)],
        "ResumeTables": [tiering.ResumeTablesRequest(table_paths=[path], include_scheduled=True)],
        "CancelTiering": [tiering.CancelTieringRequest(lease_id=of.lease_id, reason="enough")],
        "ReleaseKvSnapshotLease": [
            leases.ReleaseKvSnapshotLeaseRequest(lease_id=of.lease_id, buckets_to_release=[bucket])
        ],
        "DropKvSnapshotLease": [leases.DropKvSnapshotLeaseRequest(lease_id=of.lease_id)],
        "AlterTable": [tables.AlterTableRequest(table_path=path, set_properties={"table.datalake.freshness": "5min"})],
        "DropPartition": [
            tables.DropPartitionRequest(table_path=path, partition_values=["x"]),
            tables.DropPartitionRequest(table_path=path, partition_values=["x"], ignore_if_not_exists=True),
        ],
        "CreateTable": [
            tables.CreateTableRequest(table_path=path, descriptor=descriptor_to_pb(descriptor())),
            tables.CreateTableRequest(
                table_path=path, descriptor=descriptor_to_pb(descriptor()), ignore_if_exists=True
            ),
        ],
        "DropTable": [
            tables.DropTableRequest(table_path=path, drop_untiered=True),
            tables.DropTableRequest(table_path=path, ignore_if_not_exists=True, drop_untiered=True),
        ],
    }
