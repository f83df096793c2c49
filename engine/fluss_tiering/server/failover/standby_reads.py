"""The reads that a standby server answers from the database while no server is active."""

# ruff: noqa: N802 - the methods are named by the API

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import Final

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import KvSnapshotLeasesServicer
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringServicer
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import not_tiered
from fluss_tiering.model.lease import KvSnapshotLease
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.server.rpc.reads import LeaseReads, TieringReads
from fluss_tiering.server.rpc.roles import Handler
from fluss_tiering.server.rpc.scope.leases import LeaseTables
from fluss_tiering.server.rpc.services import KV_SNAPSHOT_LEASES, LAKE_TIERING
from fluss_tiering.server.rpc.status_entries import StatusEntries
from fluss_tiering.server.security.scope import is_hidden
from fluss_tiering.server.store.records import LeaseAttempt, RoundsPage
from fluss_tiering.server.store.store import SqlTieringStore
from fluss_tiering.server.threads import ServerThreads

_READS: Final = frozenset({"ListTieringStatuses", "ListTieringRounds", "GetLeaseOutcome", "ListKvSnapshotLeases"})


def read_handlers(threads: ServerThreads, open_store: Callable[[], SqlTieringStore]) -> dict[str, Handler]:
    """Return the handlers of the reads, by the path of the method.

    Args:
        threads: The threads of the server.
        open_store: Opens the store, or returns the open one. It is called in the control thread for each read.
    """
    tables = _StoredTables(threads, open_store)
    stored_tiering, stored_leases = _StoredTiering(open_store), _StoredLeases(open_store)
    leased = LeaseTables(threads, stored_leases.table_ids, stored_tiering.rounds_page, tables.paths_of)
    tiering = TieringReads(threads, stored_tiering, tables, leased, StatusEntries())
    leases = LeaseReads(threads, stored_leases, leased)
    # Abstract in the stubs alone. The calls that they leave out are forwarded, never handled here.
    handlers = {
        **LAKE_TIERING.handlers(_StandbyTieringServicer(tiering)),  # type: ignore[abstract]
        **KV_SNAPSHOT_LEASES.handlers(_StandbyLeasesServicer(leases)),  # type: ignore[abstract]
    }
    return {method: handler for method, handler in handlers.items() if method.rpartition("/")[2] in _READS}


class _StandbyTieringServicer(LakeTieringServicer):
    """The reads of the LakeTiering service."""

    def __init__(self, reads: TieringReads) -> None:
        self._reads = reads

    async def ListTieringStatuses(  # type: ignore[override] # serialized already, which the standby role allows
        self, request: lake_tiering_pb2.ListTieringStatusesRequest, context: object
    ) -> bytes:
        return await self._reads.list_statuses(request)

    async def ListTieringRounds(  # type: ignore[override] # likewise
        self, request: lake_tiering_pb2.ListTieringRoundsRequest, context: object
    ) -> bytes:
        return await self._reads.list_rounds(request)

    async def GetLeaseOutcome(
        self, request: lake_tiering_pb2.GetLeaseOutcomeRequest, context: object
    ) -> lake_tiering_pb2.GetLeaseOutcomeResponse:
        return await self._reads.lease_outcome(request)


class _StandbyLeasesServicer(KvSnapshotLeasesServicer):
    """The reads of the KvSnapshotLeases service."""

    def __init__(self, reads: LeaseReads) -> None:
        self._reads = reads

    async def ListKvSnapshotLeases(  # type: ignore[override] # likewise
        self, request: kv_snapshot_leases_pb2.ListKvSnapshotLeasesRequest, context: object
    ) -> bytes:
        return await self._reads.list_leases(request)


class _StoredTiering:
    """The statuses and rounds as the database holds them: `ReadableTiering`."""

    def __init__(self, open_store: Callable[[], SqlTieringStore]) -> None:
        self._open_store = open_store

    def statuses(self, path: TablePath | None = None) -> Sequence[TieringStatus]:
        # The row of a table that was dropped and created anew may be there beside the newer one.
        newest: dict[TablePath, TieringStatus] = {}
        for status in sorted(self._open_store().statuses(), key=lambda status: status.table_id):
            if path in (None, status.path):
                newest[status.path] = status
        # Initialized is left at once. Only a table whose tiering is switched off is stored so, to keep its epoch.
        statuses = [status for status in newest.values() if status.state is not TieringState.INITIALIZED]
        if path is not None and not statuses:
            raise not_tiered(path)
        return sorted(statuses, key=lambda status: status.path)

    def rounds_page(
        self, path: TablePath | None, lease_id: str | None, limit: int, after: int | None, max_tables: int
    ) -> RoundsPage:
        return self._open_store().rounds_page(
            path=path, lease_id=lease_id, limit=limit, after=after, max_tables=max_tables
        )

    def attempt(self, lease_id: str) -> LeaseAttempt | None:
        return self._open_store().attempt(lease_id)


class _StoredLeases:
    """The leases as the database holds them: `ReadableLeases`."""

    def __init__(self, open_store: Callable[[], SqlTieringStore]) -> None:
        self._open_store = open_store

    def leases(self, lease_id: str) -> Sequence[KvSnapshotLease]:
        return self._open_store().leases_of([lease_id]).sound

    def table_ids(self, lease_id: str) -> Collection[int] | None:
        """Return the ids of the tables that a lease pins; None if the lease cannot be loaded."""
        stored = self._open_store().leases_of([lease_id])
        if stored.damaged:
            return None
        return {bucket.table_id for each in stored.sound for bucket in each.snapshots}

    def page(self, after: str, max_leases: int, max_snapshots: int) -> Sequence[KvSnapshotLease]:
        store = self._open_store()
        # The ids are compared here, since the order of a database's texts may be another one.
        ids = store.lease_ids()
        while chosen := heapq.nsmallest(max_leases, (each for each in ids if each > after)):
            pins = store.pin_counts(chosen)
            before = accumulate((pins.get(lease_id, 0) for lease_id in chosen), initial=0)
            some = [lease_id for lease_id, count in zip(chosen, before, strict=False) if count < max_snapshots]
            if found := store.leases_of(some).sound:
                return sorted(found, key=lambda lease: lease.lease_id)
            # All of them are damaged.
            after = some[-1]
        return ()


class _StoredTables:
    """A `TableLookup` that knows the tables of the database: those that are tiered."""

    def __init__(self, threads: ServerThreads, open_store: Callable[[], SqlTieringStore]) -> None:
        self._threads = threads
        self._open_store = open_store

    async def missing(self, paths: Sequence[TablePath]) -> dict[TablePath, FlussTieringError]:
        tiered = await self._threads.control(self._tiered)
        return {path: _unknown(path) for path in paths if path not in tiered or is_hidden(path)}

    async def require(self, path: TablePath) -> None:
        for error in (await self.missing([path])).values():
            raise error

    async def paths_of(self, table_ids: Collection[int]) -> Mapping[int, TablePath]:
        """Return the paths of tables. The database has no path of a table that is not tiered."""
        paths = await self._threads.control(self._paths)
        return {table_id: paths[table_id] for table_id in table_ids if table_id in paths}

    def _paths(self) -> dict[int, TablePath]:
        return {status.table_id: status.path for status in self._open_store().statuses()}

    def _tiered(self) -> set[TablePath]:
        return {status.path for status in self._open_store().statuses()}


def _unknown(path: TablePath) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.TABLE_NOT_EXIST,
        f"table {path} is not known to the server's database: it does not exist or is not tiered; "
        "ask again once a server is active",
    )
