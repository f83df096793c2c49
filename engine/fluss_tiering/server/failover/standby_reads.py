"""The reads that a waiting server answers from the store itself while no server is active (S28)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import KvSnapshotLease
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseOutcome, TieringRound, TieringStatus
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.leases.attempts import outcome_of
from fluss_tiering.server.rpc.kv_snapshot_leases import LeasesServicer
from fluss_tiering.server.rpc.lake_tiering import LakeTieringServicer
from fluss_tiering.server.rpc.roles import Handler
from fluss_tiering.server.rpc.services import SERVICES, handlers_of
from fluss_tiering.server.store.store import SqlTieringStore
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.server.tiering.fence import not_tiered

_READS: Final = frozenset({"ListTieringStatuses", "ListTieringRounds", "GetLeaseOutcome", "ListKvSnapshotLeases"})


def read_handlers(threads: ServerThreads, open_store: Callable[[], SqlTieringStore]) -> dict[str, Handler]:
    """The handlers of the reads, by the path of the method; the store is opened for each call, in its own thread."""
    components = _StoredParts(threads, _StoredTables(open_store), _StoredCoordinator(open_store))
    services = [service for service in SERVICES if service.make in {LakeTieringServicer, LeasesServicer}]
    # Of a server's parts these servicers' reads use no more than what stands here.
    handlers = handlers_of(cast("ServerComponents", components), services)
    return {method: handler for method, handler in handlers.items() if method.rpartition("/")[2] in _READS}


class _StoredTiering:
    def __init__(self, open_store: Callable[[], SqlTieringStore]) -> None:
        self._open_store = open_store

    def statuses(self, path: TablePath | None = None) -> Sequence[TieringStatus]:
        statuses = [each for each in self._open_store().statuses() if path in (None, each.path)]
        if path is not None and not statuses:
            raise not_tiered(path)
        return sorted(statuses, key=lambda status: status.path)

    def untiered(self, paths: Sequence[TablePath]) -> list[TablePath]:
        tiered = {status.path for status in self._open_store().statuses()}
        return [path for path in paths if path not in tiered]

    def rounds(self, path: TablePath | None, lease_id: str | None, limit: int) -> Sequence[TieringRound]:
        return self._open_store().rounds(path=path, lease_id=lease_id, limit=limit)

    def lease_outcome(self, lease_id: str, attempt_token: int | None) -> LeaseOutcome:
        store = self._open_store()
        newest = next((attempt for attempt in store.attempts() if attempt.lease_id == lease_id), None)
        return outcome_of(newest, store.rounds(path=None, lease_id=lease_id, limit=1), attempt_token)


class _StoredLeases:
    def __init__(self, open_store: Callable[[], SqlTieringStore]) -> None:
        self._open_store = open_store

    def leases(self, lease_id: str | None = None) -> Sequence[KvSnapshotLease]:
        leases = self._open_store().leases()
        return sorted((each for each in leases if lease_id in (None, each.lease_id)), key=lambda lease: lease.lease_id)


class _StoredTables:
    """Whether a table exists, as far as the store knows: those that are tiered."""

    def __init__(self, open_store: Callable[[], SqlTieringStore]) -> None:
        self._open_store = open_store

    def table(self, path: TablePath) -> None:
        if all(status.path != path for status in self._open_store().statuses()):
            raise FlussTieringError(
                ErrorCode.TABLE_NOT_EXIST,
                f"table {path} is not known to the server's database: it does not exist, or is not tiered; "
                "ask again once a server is active",
            )


class _StoredCoordinator:
    def __init__(self, open_store: Callable[[], SqlTieringStore]) -> None:
        self.tiering = _StoredTiering(open_store)
        self.leases = _StoredLeases(open_store)


class _NoBackend:
    """Reads need no lease service and no lake service, and what the store knows of tables cannot be refreshed."""

    leases = lake = None

    async def refresh_tables(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class _StoredParts:
    threads: ServerThreads
    storage: _StoredTables
    managers: _StoredCoordinator
    backend: _NoBackend = field(default_factory=_NoBackend)
