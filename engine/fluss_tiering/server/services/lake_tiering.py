"""The LakeTiering service. Each call is answered by the object for its concern."""

# ruff: noqa: N802 - the methods are named by the API

from __future__ import annotations

from collections.abc import AsyncIterator

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringServicer as GeneratedLakeTieringServicer
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.services.lake_snapshots import LakeSnapshotCalls
from fluss_tiering.server.services.reads import StatusEntries, TieringReads
from fluss_tiering.server.services.rounds import RoundCalls
from fluss_tiering.server.services.statuses import StatusCalls
from fluss_tiering.server.services.table_lookup import StorageLookup


class LakeTieringServicer(GeneratedLakeTieringServicer):
    """Tiering over gRPC."""

    def __init__(self, components: ServerComponents) -> None:
        threads, storage, backend = components.threads, components.storage, components.backend
        tiering, entries = components.managers.tiering, StatusEntries()
        tables = StorageLookup(threads, storage, tiering, backend.refresh_tables)
        self._rounds = RoundCalls(threads, tiering, tables, components.executor_tokens)
        self._reads = TieringReads(threads, tiering, tables, entries)
        self._statuses = StatusCalls(threads, tiering, tables, entries)
        self._lake_snapshots = LakeSnapshotCalls(threads, storage, backend.lake)

    async def LakeTieringHeartbeat(
        self, request: pb.LakeTieringHeartbeatRequest, context: object
    ) -> pb.LakeTieringHeartbeatResponse:
        """Take reports of rounds, and hand out a pending table."""
        return await self._rounds.heartbeat(request)

    async def ClaimTables(self, request: pb.ClaimTablesRequest, context: object) -> pb.ClaimTablesResponse:
        """Claim tables by name."""
        return await self._rounds.claim(request)

    async def CancelTiering(self, request: pb.CancelTieringRequest, context: object) -> pb.CancelTieringResponse:
        """Fail the running rounds of an attempt."""
        return await self._rounds.cancel(request)

    async def ListTieringRounds(  # type: ignore[override] # likewise
        self, request: pb.ListTieringRoundsRequest, context: object
    ) -> bytes:
        """Return the last rounds of a table, a lease, or all tables, as a serialized ListTieringRoundsResponse."""
        return await self._reads.list_rounds(request)

    async def GetLeaseOutcome(self, request: pb.GetLeaseOutcomeRequest, context: object) -> pb.GetLeaseOutcomeResponse:
        """Return the newest round of each table under a lease."""
        return await self._reads.lease_outcome(request)

    async def ListTieringStatuses(  # type: ignore[override] # serialized already, which the interceptor allows
        self, request: pb.ListTieringStatusesRequest, context: object
    ) -> bytes:
        """Return the status of a table, or of all tables, as a serialized ListTieringStatusesResponse."""
        return await self._reads.list_statuses(request)

    def WatchTieringStatuses(  # type: ignore[override] # likewise
        self, request: pb.WatchTieringStatusesRequest, context: object
    ) -> AsyncIterator[bytes]:
        """Yield the watched statuses and then each change, as serialized WatchTieringStatusesResponses."""
        return self._statuses.watch(request)

    async def ResumeTables(self, request: pb.ResumeTablesRequest, context: object) -> pb.ResumeTablesResponse:
        """Make failed tables Pending at once."""
        return await self._statuses.resume(request)

    async def PrepareLakeTableSnapshot(
        self, request: pb.PrepareLakeTableSnapshotRequest, context: object
    ) -> pb.PrepareLakeTableSnapshotResponse:
        """Write the offsets files of future lake snapshots."""
        return await self._lake_snapshots.prepare(request)

    async def CommitLakeTableSnapshot(
        self, request: pb.CommitLakeTableSnapshotRequest, context: object
    ) -> pb.CommitLakeTableSnapshotResponse:
        """Register lake snapshots."""
        return await self._lake_snapshots.commit(request)

    async def GetLakeSnapshot(self, request: pb.GetLakeSnapshotRequest, context: object) -> pb.GetLakeSnapshotResponse:
        """Return a lake snapshot."""
        return await self._lake_snapshots.get(request)
