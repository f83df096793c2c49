"""The calls of the LakeTiering service that prepare, register and read lake snapshots."""

from __future__ import annotations

from collections.abc import Mapping

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.client.calls.arguments import checked_arguments
from fluss_tiering.client.calls.call import UnaryCall
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.wire import lake as wire
from fluss_tiering.wire.errors import error_from_pb
from fluss_tiering.wire.tables import path_to_pb


@checked_arguments
def prepare_lake_snapshot(
    table: TableInfo, tiering_epoch: int, log_end_offsets: Mapping[TableBucket, int]
) -> UnaryCall[pb.PrepareLakeTableSnapshotRequest, pb.PrepareLakeTableSnapshotResponse, str]:
    """Write the offsets file of a lake snapshot that will be registered; the answer is the path of the file."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.PrepareLakeTableSnapshot,
        pb.PrepareLakeTableSnapshotRequest(
            bucket_offsets=[
                pb.PbTableOffsets(
                    table_id=table.table_id,
                    table_path=path_to_pb(table.path),
                    bucket_offsets=wire.log_end_offsets_to_pb(log_end_offsets),
                    tiering_epoch=tiering_epoch,
                )
            ]
        ),
        _prepared_path,
    )


@checked_arguments
def commit_lake_snapshot(
    *,
    table: TableInfo,
    tiering_epoch: int,
    snapshot_id: int,
    log_end_offsets: Mapping[TableBucket, int],
    offsets_path: str,
    commit_id: str,
) -> UnaryCall[pb.CommitLakeTableSnapshotRequest, pb.CommitLakeTableSnapshotResponse, None]:
    """Register a lake snapshot."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.CommitLakeTableSnapshot,
        pb.CommitLakeTableSnapshotRequest(
            tables_req=[
                pb.PbLakeTableSnapshotInfo(
                    table_id=table.table_id,
                    snapshot_id=snapshot_id,
                    buckets_req=wire.log_end_offsets_to_pb(log_end_offsets),
                    table_path=path_to_pb(table.path),
                    tiering_epoch=tiering_epoch,
                    commit_id=commit_id,
                )
            ],
            lake_table_snapshot_metadata=[
                pb.PbLakeTableSnapshotMetadata(
                    table_id=table.table_id, snapshot_id=snapshot_id, tiered_bucket_offsets_file_path=offsets_path
                )
            ],
        ),
        _raise_refusal,
    )


@checked_arguments
def lake_snapshot(path: TablePath) -> UnaryCall[pb.GetLakeSnapshotRequest, pb.GetLakeSnapshotResponse, LakeSnapshot]:
    """Read the newest registered lake snapshot; the answer is LAKE_SNAPSHOT_NOT_EXIST if there is none."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.GetLakeSnapshot,
        pb.GetLakeSnapshotRequest(table_path=path_to_pb(path)),
        wire.lake_snapshot_from_pb,
    )


def _prepared_path(response: pb.PrepareLakeTableSnapshotResponse) -> str:
    for prepared in response.prepared_tables:
        if prepared.HasField("error"):
            raise error_from_pb(prepared.error)
        return prepared.lake_table_offsets_path
    raise FlussTieringError(ErrorCode.UNKNOWN, "the tiering server's answer to a prepare call names no table")


def _raise_refusal(response: pb.CommitLakeTableSnapshotResponse) -> None:
    for committed in response.tables_resp:
        if committed.HasField("error"):
            raise error_from_pb(committed.error)
