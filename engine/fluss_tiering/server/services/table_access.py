"""Refuses each call that names a table outside of the caller's patterns, before a service sees the request.

A request names tables by path or by id, or it names a lease, which stands for the tables that it pins and those that
have rounds under it. A lease or an id that nobody knows is left to the services.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import KvSnapshotLease
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.edge.callers.identity import Caller, TableScope, caller
from fluss_tiering.server.edge.handlers import Passage, surrounded
from fluss_tiering.server.edge.methods import Kind, names_in

if TYPE_CHECKING:
    from fluss_tiering.server.edge.handlers import Context, Handler

_TABLES_AT_ONCE: Final = 50


class TableAccess:
    """Compares the tables that requests name with those that the caller's role is for."""

    def __init__(self, components: ServerComponents) -> None:
        self._threads = components.threads
        self._storage = components.storage
        self._tiering = components.managers.tiering
        self._leases = components.managers.leases

    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return a handler that looks at each request first."""

        async def looked_at(requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
            async for request in requests:
                await self.require(request, method)
                yield request

        @asynccontextmanager
        async def around(passage: Passage, context: Context) -> AsyncIterator[None]:
            del context
            if handler.request_streaming:
                passage.requests = looked_at(passage.requests)
            else:
                await self.require(passage.requests, method)
            yield

        return surrounded(handler, around)

    async def require(self, request: Message, method: str) -> None:
        """Check that the caller may make a call about all that a request names.

        Raises:
            FlussTieringError: AUTHORIZATION if it may not, whether or not there is such a table.
        """
        present = caller()
        tables, executor_of = present.tables, present.identity.executor_of
        if tables is None and executor_of is None:
            return
        named: dict[Kind, set[Any]] = {kind: set() for kind in Kind}
        for kind, value in names_in(request):
            named[kind].add(TablePath(value.database_name, value.table_name) if kind is Kind.PATH else value)
        if executor_of is not None:
            for table_id in named[Kind.TABLE_ID] - {executor_of.table_id}:
                raise FlussTieringError(
                    ErrorCode.AUTHORIZATION,
                    f"this token is for table {executor_of.table_id}, and the call is for table {table_id}",
                )
            return
        assert tables is not None  # noqa: S101 - for mypy
        for path in sorted(named[Kind.PATH]):
            if path not in tables:
                raise _refused(present, method, f"table {path}")
        paths = await self.paths_of(named[Kind.TABLE_ID])
        for table_id, path in sorted(paths.items()):
            if path not in tables:
                raise _refused(present, method, f"table {table_id}")
        for lease_id in sorted(named[Kind.LEASE]):
            if not await self._is_inside(lease_id, tables):
                raise _refused(present, method, f"lease {lease_id}, which has tables of others")

    async def paths_of(self, table_ids: Collection[int]) -> Mapping[int, TablePath]:
        """Return the paths of tables by their ids, without those that do not exist.

        The storage may be out of reach. It is asked only about tables that are not tiered.
        """
        if not table_ids:
            return {}
        paths = await self._threads.control(self._tiered, table_ids)
        others = [table_id for table_id in table_ids if table_id not in paths]
        return paths | (await self._threads.storage(self._stored, others) if others else {})

    async def visible_leases(self, leases: Sequence[KvSnapshotLease]) -> Sequence[KvSnapshotLease]:
        """Return what the caller may see of leases: each with its own tables only, if there are any."""
        present = caller()
        if present.tables is None:
            return leases
        paths = await self.paths_of({bucket.table_id for lease in leases for bucket in lease.snapshots})
        seen = {table_id for table_id, path in paths.items() if present.sees(path)}
        return await self._threads.storage(_of_tables, leases, seen)

    def _tiered(self, table_ids: Iterable[int]) -> dict[int, TablePath]:
        found = {table_id: self._tiering.tables.get(table_id) for table_id in table_ids}
        return {table_id: table.status.path for table_id, table in found.items() if table is not None}

    def _stored(self, table_ids: Iterable[int]) -> dict[int, TablePath]:
        found = {}
        for table_id in table_ids:
            try:
                found[table_id] = self._storage.table_by_id(table_id).path
            except FlussTieringError as error:
                if error.code is not ErrorCode.TABLE_NOT_EXIST:
                    raise
        return found

    async def _is_inside(self, lease_id: str, tables: TableScope) -> bool:
        """Return whether all tables of a lease are inside of a scope. Nobody knows those of a damaged lease."""
        pinned = await self._threads.control(self._leases.table_ids, lease_id)
        if pinned is None or any(path not in tables for path in (await self.paths_of(pinned)).values()):
            return False
        after: int | None = None
        while True:
            page = await self._threads.control(self._tiering.rounds_page, None, lease_id, 1, after, _TABLES_AT_ONCE)
            if any(each.path not in tables for each in page.rounds):
                return False
            after = page.next_after
            if after is None:
                return True


def _refused(present: Caller, method: str, what: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.AUTHORIZATION,
        f"{present.identity.name} may not call {method.rpartition('/')[2]} for {what}: its role {present.role} is for "
        "other tables only; ask an administrator of the server for it",
    )


def _of_tables(leases: Iterable[KvSnapshotLease], table_ids: Collection[int]) -> list[KvSnapshotLease]:
    shown = [
        replace(
            lease, snapshots={bucket: id_ for bucket, id_ in lease.snapshots.items() if bucket.table_id in table_ids}
        )
        for lease in leases
    ]
    return [lease for lease in shown if lease.snapshots]
