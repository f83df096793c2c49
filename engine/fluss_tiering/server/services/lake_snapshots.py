"""Calls of the LakeTiering service that prepare, commit and read lake snapshots."""

from __future__ import annotations

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.core.backend_services import LakeService
from fluss_tiering.server.core.lake.merging import CommitRegistration
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.storage.protocol import TableStorage
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.checks import MAX_BUCKET_ENTRIES, bounded, bounded_total, identifier, required
from fluss_tiering.wire.errors import error_to_pb
from fluss_tiering.wire.tables import path_from_pb


class LakeSnapshotCalls:
    """Prepares, commits and reads lake snapshots.

    Args:
        threads: The threads of the server.
        storage: The tables.
        lake: The service that knows the lake snapshots.
    """

    def __init__(self, threads: ServerThreads, storage: TableStorage, lake: LakeService) -> None:
        self._threads = threads
        self._storage = storage
        self._lake = lake

    async def prepare(self, request: pb.PrepareLakeTableSnapshotRequest) -> pb.PrepareLakeTableSnapshotResponse:
        """Write the offsets files of future lake snapshots, each table on its own."""
        response = pb.PrepareLakeTableSnapshotResponse()
        tables = bounded(request, "bucket_offsets", request.bucket_offsets)
        offsets = sum(len(table.bucket_offsets) for table in tables)
        bounded_total(request, "bucket_offsets", offsets, MAX_BUCKET_ENTRIES)
        for table in tables:
            prepared = response.prepared_tables.add(table_id=table.table_id)
            try:
                prepared.lake_table_offsets_path = await self._prepare(
                    table, ignore_previous=request.ignore_previous_table_offsets
                )
            except FlussTieringError as error:
                prepared.error.CopyFrom(error_to_pb(error))
        return response

    async def commit(self, request: pb.CommitLakeTableSnapshotRequest) -> pb.CommitLakeTableSnapshotResponse:
        """Register lake snapshots, each table on its own."""
        named = bounded(request, "lake_table_snapshot_metadata", request.lake_table_snapshot_metadata)
        metadata = {each.table_id: each for each in named}
        response = pb.CommitLakeTableSnapshotResponse()
        tables = bounded(request, "tables_req", request.tables_req)
        bounded_total(request, "tables_req", sum(len(table.buckets_req) for table in tables), MAX_BUCKET_ENTRIES)
        for table in tables:
            committed = response.tables_resp.add(table_id=table.table_id)
            try:
                await self._commit(table, metadata.get(table.table_id))
            except FlussTieringError as error:
                committed.error.CopyFrom(error_to_pb(error))
        return response

    async def get(self, request: pb.GetLakeSnapshotRequest) -> pb.GetLakeSnapshotResponse:
        """Return the newest lake snapshot that is known, or the one of an id. Both can be read from the lake."""
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
        return await self._threads.storage(wire.lake_snapshot_to_pb, snapshot)

    async def _prepare(self, request: pb.PbTableOffsets, *, ignore_previous: bool) -> str:
        table = await self._threads.storage(self._storage.table_by_id, request.table_id)
        # In a thread, because a table may have a hundred thousand buckets.
        offsets = await self._threads.storage(wire.log_end_offsets_from_pb, table.table_id, request.bucket_offsets)
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
        offsets = await self._threads.storage(wire.log_end_offsets_from_pb, table.table_id, request.buckets_req)
        commit = CommitRegistration(
            table=table,
            tiering_epoch=request.tiering_epoch,
            snapshot_id=request.snapshot_id,
            log_end_offsets=offsets,
            commit_id=identifier(request, "commit_id", request.commit_id),
            offsets_path=metadata.tiered_bucket_offsets_file_path,
        )
        await self._lake.commit(commit)
