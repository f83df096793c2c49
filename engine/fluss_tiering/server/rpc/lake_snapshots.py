"""The part of the LakeTiering service that prepares, commits and reads lake snapshots."""

# ruff: noqa: N802 - the methods are named by the API

from __future__ import annotations

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringServicer as GeneratedLakeTieringServicer
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.lake.manager import CommitRegistration
from fluss_tiering.wire import lake as wire
from fluss_tiering.wire.checks import bounded, identifier, required
from fluss_tiering.wire.errors import error_to_pb
from fluss_tiering.wire.tables import path_from_pb


class LakeSnapshotsServicer(GeneratedLakeTieringServicer):
    """Lake snapshots over gRPC."""

    def __init__(self, components: ServerComponents) -> None:
        self._threads = components.threads
        self._storage = components.storage
        self._managers = components.managers
        self._tiering = components.managers.tiering
        self._lake = components.backend.lake

    async def PrepareLakeTableSnapshot(
        self, request: pb.PrepareLakeTableSnapshotRequest, context: object
    ) -> pb.PrepareLakeTableSnapshotResponse:
        """Writes the offsets file of lake snapshots to be, each table on its own (S5)."""
        response = pb.PrepareLakeTableSnapshotResponse()
        for table in bounded(request, "bucket_offsets", request.bucket_offsets):
            prepared = response.prepared_tables.add(table_id=table.table_id)
            try:
                prepared.lake_table_offsets_path = await self._prepare(
                    table, ignore_previous=request.ignore_previous_table_offsets
                )
            except FlussTieringError as error:
                prepared.error.CopyFrom(error_to_pb(error))
        return response

    async def CommitLakeTableSnapshot(
        self, request: pb.CommitLakeTableSnapshotRequest, context: object
    ) -> pb.CommitLakeTableSnapshotResponse:
        """Makes lake snapshots known, each table on its own (S5)."""
        metadata = {each.table_id: each for each in request.lake_table_snapshot_metadata}
        response = pb.CommitLakeTableSnapshotResponse()
        for table in bounded(request, "tables_req", request.tables_req):
            committed = response.tables_resp.add(table_id=table.table_id)
            try:
                await self._commit(table, metadata.get(table.table_id))
            except FlussTieringError as error:
                committed.error.CopyFrom(error_to_pb(error))
        return response

    async def GetLakeSnapshot(self, request: pb.GetLakeSnapshotRequest, context: object) -> pb.GetLakeSnapshotResponse:
        """The newest lake snapshot that is known, or one by its id; each of them is readable."""
        path = path_from_pb(required(request, "table_path", request.table_path))
        table = await self._threads.storage(self._storage.table, path)
        if request.HasField("snapshot_id"):
            which = f"no lake snapshot {request.snapshot_id}"
            snapshot = await self._lake.snapshot(table, request.snapshot_id)
        else:
            which = "no lake snapshot yet"
            snapshot = await self._lake.newest(table)
        if snapshot is None:
            raise FlussTieringError(ErrorCode.LAKE_SNAPSHOT_NOT_EXIST, f"table {path} has {which}: tier it first")
        return wire.lake_snapshot_to_pb(snapshot)

    async def _prepare(self, request: pb.PbTableOffsets, *, ignore_previous: bool) -> str:
        table = await self._threads.storage(self._storage.table_by_id, request.table_id)
        offsets = wire.log_end_offsets_from_pb(table.table_id, request.bucket_offsets)
        return await self._lake.prepare(table, request.tiering_epoch, offsets, ignore_previous=ignore_previous)

    async def _commit(
        self, request: pb.PbLakeTableSnapshotInfo, metadata: pb.PbLakeTableSnapshotMetadata | None
    ) -> None:
        if metadata is None or metadata.snapshot_id != request.snapshot_id:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"lake_table_snapshot_metadata lacks snapshot {request.snapshot_id} of table {request.table_id}: "
                "expected it to name the offsets file",
            )
        table = await self._threads.storage(self._storage.table_by_id, request.table_id)
        commit = CommitRegistration(
            table=table,
            tiering_epoch=request.tiering_epoch,
            snapshot_id=request.snapshot_id,
            log_end_offsets=wire.log_end_offsets_from_pb(table.table_id, request.buckets_req),
            commit_id=identifier(request, "commit_id", request.commit_id),
            offsets_path=metadata.tiered_bucket_offsets_file_path,
        )
        await self._lake.commit(commit)
