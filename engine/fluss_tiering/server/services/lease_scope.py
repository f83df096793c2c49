"""Leases as callers see them: a lease of other tables does not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.server.core.leases.manager import lease_not_exist
from fluss_tiering.server.core.leases.service import LeaseService
from fluss_tiering.server.core.managers import Managers, require_leasable
from fluss_tiering.server.core.store.records import RoundsPage
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.edge.callers.scope import TableScope, present_scope
from fluss_tiering.storage.protocol import TableStorage

_TABLES_AT_ONCE: Final = 50

PathsOf: TypeAlias = Callable[[Collection[int]], Awaitable[Mapping[int, TablePath]]]
"""Returns the paths of tables by their ids, without those that do not exist."""


@dataclass(frozen=True, slots=True)
class LeaseTables:
    """Finds the tables of leases: those whose snapshots a lease pins, and those that have rounds under it.

    Attributes:
        threads: The threads of the server.
        pinned: Returns the ids of the tables that a lease pins; None if the lease is damaged, so that nobody knows
            them. It is called in the control thread.
        rounds: Returns rounds, as `TieringStore.rounds_page` does. It is called in the control thread.
        paths_of: Returns the paths of tables.
    """

    threads: ServerThreads
    pinned: Callable[[str], Collection[int] | None]
    rounds: Callable[[TablePath | None, str | None, int, int | None, int], RoundsPage]
    paths_of: PathsOf

    async def has_hidden(self, lease_id: str) -> bool:
        """Return whether the caller may not see one of the lease's tables. The lease does not exist for the caller."""
        scope = present_scope()
        return scope is not None and False in await self._seen(lease_id, scope)

    async def is_hidden(self, lease_id: str) -> bool:
        """Return whether the lease has tables and the caller may see none of them."""
        scope = present_scope()
        return scope is not None and await self._seen(lease_id, scope) == {False}

    async def require_usable(self, lease_id: str) -> None:
        """Check that the caller may begin something under a lease, which need not exist yet.

        Raises:
            FlussTieringError: AUTHORIZATION if the lease has a table that the caller may not see.
        """
        if await self.has_hidden(lease_id):
            raise FlussTieringError(
                ErrorCode.AUTHORIZATION,
                f"lease id {lease_id} cannot be used: it is in use for tables that your role is not for; choose "
                "another lease id",
            )

    async def visible(self, leases: Sequence[KvSnapshotLease]) -> Sequence[KvSnapshotLease]:
        """Return what the caller may see of leases: each with the visible tables only, if there are any."""
        scope = present_scope()
        if scope is None or not leases:
            return leases
        paths = await self.paths_of(await self.threads.storage(_table_ids, leases))
        shown = {table_id for table_id, path in paths.items() if scope.shows(path)}
        return await self.threads.storage(_of_tables, leases, shown)

    async def _seen(self, lease_id: str, scope: TableScope) -> set[bool]:
        """Return for the tables of a lease whether they are visible. A table that nobody knows is not."""
        table_ids = await self.threads.control(self.pinned, lease_id)
        if table_ids is None:
            return {False}
        paths = await self.paths_of(table_ids)
        seen = {table_id in paths and scope.shows(paths[table_id]) for table_id in table_ids}
        after: int | None = None
        while True:
            page = await self.threads.control(self.rounds, None, lease_id, 1, after, _TABLES_AT_ONCE)
            seen |= {scope.shows(each.path) for each in page.rounds}
            after = page.next_after
            if after is None:
                return seen


class VisibleLeases:
    """A `LeaseService` for the calls of clients.

    Args:
        leases: The leases.
        tables: The tables of the leases.
        storage: The tables, as callers see them.
    """

    def __init__(self, leases: LeaseService, tables: LeaseTables, storage: TableStorage) -> None:
        self._leases = leases
        self._tables = tables
        self._storage = storage

    async def acquire(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], *, allow_empty: bool
    ) -> AcquiredLease:
        """Pin snapshots: see `LeaseService`.

        Raises:
            FlussTieringError: The errors of `LeaseService.acquire` and `LeaseTables.require_usable`.
        """
        if present_scope() is not None:
            await self._tables.threads.storage(
                require_leasable, self._storage, lease_id, snapshots, allow_empty=allow_empty
            )
            await self._tables.require_usable(lease_id)
        return await self._leases.acquire(lease_id, duration_ms, snapshots, allow_empty=allow_empty)

    async def renew(self, durations_ms: Sequence[tuple[str, int]]) -> list[int | FlussTieringError]:
        """Renew leases: see `LeaseService`."""
        if present_scope() is None:
            return await self._leases.renew(durations_ms)
        hidden = {lease_id for lease_id, _ in durations_ms if await self._tables.has_hidden(lease_id)}
        renewed = iter(await self._leases.renew([each for each in durations_ms if each[0] not in hidden]))
        return [lease_not_exist(lease_id) if lease_id in hidden else next(renewed) for lease_id, _ in durations_ms]

    async def release(self, lease_id: str, buckets: Iterable[TableBucket], attempt_token: int | None) -> bool:
        """Release buckets of a lease: see `LeaseService`."""
        if await self._tables.has_hidden(lease_id):
            return True
        return await self._leases.release(lease_id, buckets, attempt_token)

    async def drop(self, lease_id: str, attempt_token: int | None) -> LeaseDrop:
        """Drop a lease: see `LeaseService`."""
        if await self._tables.has_hidden(lease_id):
            return LeaseDrop.UNKNOWN
        return await self._leases.drop(lease_id, attempt_token)


def lease_tables(threads: ServerThreads, storage: TableStorage, managers: Managers) -> LeaseTables:
    """Return the tables of the leases of an active server.

    Args:
        threads: The threads of the server.
        storage: The tables, all of them or those that the caller may see.
        managers: The managers.
    """

    def look(table_ids: Collection[int]) -> dict[int, TablePath]:
        found = {}
        for table_id in table_ids:
            try:
                found[table_id] = storage.table_by_id(table_id).path
            except FlussTieringError as error:
                if error.code is not ErrorCode.TABLE_NOT_EXIST:
                    raise
        return found

    async def paths_of(table_ids: Collection[int]) -> Mapping[int, TablePath]:
        return await threads.storage(look, table_ids) if table_ids else {}

    return LeaseTables(threads, managers.leases.table_ids, managers.tiering.rounds_page, paths_of)


def _table_ids(leases: Iterable[KvSnapshotLease]) -> set[int]:
    return {bucket.table_id for lease in leases for bucket in lease.snapshots}


def _of_tables(leases: Iterable[KvSnapshotLease], table_ids: Collection[int]) -> list[KvSnapshotLease]:
    shown = [
        replace(
            lease, snapshots={bucket: id_ for bucket, id_ in lease.snapshots.items() if bucket.table_id in table_ids}
        )
        for lease in leases
    ]
    return [lease for lease in shown if lease.snapshots]
