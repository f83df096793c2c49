"""Calls that only read what the server's database holds too, so that a standby server can answer them.

They ask for no more than the protocols of this module. The active server answers from its managers, a standby server
from the database (`failover.standby_reads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import KvSnapshotLease
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseOutcome, TieringRound, TieringStatus
from fluss_tiering.server.rpc.status_entries import StatusEntries
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.wire import leases as leases_wire
from fluss_tiering.wire import tiering as tiering_wire
from fluss_tiering.wire.checks import identifier, optional_token
from fluss_tiering.wire.tables import path_from_pb

_DEFAULT_ROUNDS: Final = 20
_MAX_ROUNDS: Final = 1000


class ReadableTiering(Protocol):
    """The statuses and rounds of tables. It is called in the control thread only."""

    def statuses(self, path: TablePath | None = None) -> Sequence[TieringStatus]:
        """Return the status of a table, or of all tables that are tiered: see `LakeTieringManager.statuses`."""
        ...

    def rounds(self, path: TablePath | None, lease_id: str | None, limit: int) -> Sequence[TieringRound]:
        """Return the last rounds of each table: see `LakeTieringManager.rounds`."""
        ...

    def lease_outcome(self, lease_id: str, attempt_token: int | None) -> LeaseOutcome:
        """Return the outcome of the rounds under a lease: see `LakeTieringManager.lease_outcome`."""
        ...


class ReadableLeases(Protocol):
    """The leases. It is called in the control thread only."""

    def leases(self, lease_id: str | None = None) -> Sequence[KvSnapshotLease]:
        """Return the lease of an id, or all leases: see `KvSnapshotLeaseManager.leases`."""
        ...


class TableLookup(Protocol):
    """Tells which tables do not exist. It is used on the event loop."""

    async def missing(self, paths: Sequence[TablePath]) -> dict[TablePath, FlussTieringError]:
        """Return the tables that do not exist, each with its error."""
        ...

    async def require(self, path: TablePath) -> None:
        """Raise TABLE_NOT_EXIST if the table does not exist."""
        ...


class TieringReads:
    """Calls of the LakeTiering service that read statuses, rounds and outcomes.

    Args:
        threads: The threads of the server.
        tiering: The statuses and rounds.
        tables: Tells which tables do not exist.
        entries: The serialized statuses that were sent before.
    """

    def __init__(
        self, threads: ServerThreads, tiering: ReadableTiering, tables: TableLookup, entries: StatusEntries
    ) -> None:
        self._threads = threads
        self._tiering = tiering
        self._tables = tables
        self._entries = entries

    async def list_statuses(self, request: lake_tiering_pb2.ListTieringStatusesRequest) -> bytes:
        """Return the status of a table, or of all tables, as a serialized ListTieringStatusesResponse."""
        path = path_from_pb(request.table_path) if request.HasField("table_path") else None
        try:
            statuses = await self._threads.control(self._tiering.statuses, path)
        except FlussTieringError:
            if path is None:
                raise
            for error in (await self._tables.missing([path])).values():
                raise error from None
            statuses = await self._threads.control(self._tiering.statuses, path)
        return self._entries.of(statuses)

    async def list_rounds(
        self, request: lake_tiering_pb2.ListTieringRoundsRequest
    ) -> lake_tiering_pb2.ListTieringRoundsResponse:
        """Return the last rounds of a table, of a lease, or of all tables."""
        path = path_from_pb(request.table_path) if request.HasField("table_path") else None
        lease_id = identifier(request, "lease_id", request.lease_id) if request.HasField("lease_id") else None
        if not 0 <= request.limit <= _MAX_ROUNDS:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"ListTieringRoundsRequest.limit is {request.limit}: expected 0 to {_MAX_ROUNDS}",
            )
        rounds = await self._threads.control(self._tiering.rounds, path, lease_id, request.limit or _DEFAULT_ROUNDS)
        if path is not None and not rounds:
            await self._tables.require(path)
        return lake_tiering_pb2.ListTieringRoundsResponse(rounds=[tiering_wire.round_to_pb(each) for each in rounds])

    async def lease_outcome(
        self, request: lake_tiering_pb2.GetLeaseOutcomeRequest
    ) -> lake_tiering_pb2.GetLeaseOutcomeResponse:
        """Return the newest round of each table under a lease."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        outcome = await self._threads.control(self._tiering.lease_outcome, lease_id, optional_token(request))
        return tiering_wire.outcome_to_pb(outcome)


class LeaseReads:
    """Calls of the KvSnapshotLeases service that read leases.

    Args:
        threads: The threads of the server.
        leases: The leases.
    """

    def __init__(self, threads: ServerThreads, leases: ReadableLeases) -> None:
        self._threads = threads
        self._leases = leases

    async def list_leases(
        self, request: kv_snapshot_leases_pb2.ListKvSnapshotLeasesRequest
    ) -> kv_snapshot_leases_pb2.ListKvSnapshotLeasesResponse:
        """Return the lease of an id, or all leases."""
        leases = await self._threads.control(self._leases.leases, request.lease_id or None)
        return kv_snapshot_leases_pb2.ListKvSnapshotLeasesResponse(
            leases=[leases_wire.lease_to_pb(lease) for lease in leases]
        )
