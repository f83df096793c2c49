"""Follows the tables of a Fluss cluster, which any client of Fluss changes, and how far their logs reach."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.core.tiering.states import TieredTable
from fluss_tiering.storage.fluss.storage import FlussStorage
from fluss_tiering.storage.protocol import TableStorage

logger = structlog.get_logger(__name__)


class TableDiscovery:
    """Registers, changes and forgets tables as the cluster has them. `run_once` is a background job."""

    def __init__(self, storage: FlussStorage, managers: Managers, threads: ServerThreads) -> None:
        self._storage = storage
        self._managers = managers
        self._threads = threads
        self._followed: dict[int, TableInfo] = {}
        self._absent: set[int] = set()
        self._told: dict[TablePath, str] = {}
        self._turn = asyncio.Lock()

    @property
    def table_count(self) -> int:
        """The number of tables that can be used, as of the last look."""
        return len(self._followed)

    async def run_once(self) -> None:
        """Register new tables, take over the options of altered tables, and forget dropped tables.

        The log names a table that cannot be used once, also one that the user of the cluster may no longer describe.
        Such a table keeps its state, and the other tables go on.

        Raises:
            FlussTieringError: UNAVAILABLE if the cluster cannot be asked, in which case nothing was changed; STORAGE
                if a change cannot be stored.
        """
        # One look at a time: an older list of tables must not be applied after a newer one.
        async with self._turn:
            tables = await self._threads.storage(self._storage.listed.refresh)
            present = {table.table_id for table in tables}
            absent = await self._threads.control(self._absent_tables, present, frozenset(self._unusable()))
            if absent:
                await self._threads.storage(self._storage.listed.look_at_unlisted, set(absent.values()))
            unusable = self._unusable()
            self._tell(unusable)
            await self._threads.control(self._forget, present, frozenset(unusable))
            await self._threads.control(self._follow, tables)

    def _follow(self, tables: Sequence[TableInfo]) -> None:
        tiering = self._managers.tiering
        tiering.register_all([table for table in tables if table.table_id not in self._followed])
        for table in tables:
            before = self._followed.get(table.table_id)
            if before is not None and before.descriptor.properties != table.descriptor.properties:
                tiering.alter(table)
            self._followed[table.table_id] = table

    def _unusable(self) -> Mapping[TablePath, FlussTieringError]:
        return self._storage.listed.unusable()

    def _absent_tables(self, present: set[int], unusable: frozenset[TablePath]) -> dict[int, TablePath]:
        """Return the known tables that are not among the cluster's; in the control thread."""
        known = {table_id: table.path for table_id, table in self._followed.items()}
        known |= {table.status.table_id: table.status.path for table in self._managers.tiering.tables.all()}
        return {id_: path for id_, path in known.items() if id_ not in present and path not in unusable}

    def _forget(self, present: set[int], unusable: frozenset[TablePath]) -> None:
        absent = self._absent_tables(present, unusable)
        # A table that was never listed may have been created through this server after the list was made. The next
        # list has it.
        dropped = {table_id for table_id in absent if table_id in self._followed or table_id in self._absent}
        for table_id in dropped:
            self._managers.forget_table(table_id, absent[table_id])
            self._followed.pop(table_id, None)
        self._absent = absent.keys() - dropped

    def _tell(self, unusable: Mapping[TablePath, FlussTieringError]) -> None:
        for path, error in unusable.items():
            if self._told.get(path) != error.message:
                logger.warning("table is not tiered", table=str(path), code=error.code.value, why=error.message)
        self._told = {path: error.message for path, error in unusable.items()}


_UNUSABLE: Final = frozenset({ErrorCode.INVALID_TABLE, ErrorCode.CORRUPT_DATA, ErrorCode.AUTHORIZATION})


class ClusterLogEnds:
    """Counts the backlogs of tiered tables. `run_once` is a background job."""

    def __init__(self, threads: ServerThreads, storage: TableStorage, managers: Managers) -> None:
        self._threads = threads
        self._storage = storage
        self._tables = managers.tiering.tables
        self._backlogs = managers.backlogs
        self._unanswered: int | None = None

    async def run_once(self) -> None:
        """Look at one table after the other, and pause after each look for as long as the look took.

        A table whose bucket has no leader keeps what was counted before. No look waits for a leader, since a tablet
        server that is away may be the leader of thousands of tables.

        Raises:
            FlussTieringError: UNAVAILABLE if the cluster cannot be asked, in which case the next run begins with the
                tables after this one; the first error of a table, at the end.
        """
        failed: FlussTieringError | None = None
        for table in self._in_turn():
            began = time.perf_counter()
            try:
                await self._threads.storage(self._count, table.status)
            except FlussTieringError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    self._unanswered = table.status.table_id
                    raise
                if error.code in _UNUSABLE:
                    self._backlogs.forget(table.status.table_id)
                elif error.code is not ErrorCode.TABLE_NOT_EXIST:
                    # Of a dropped table, `TableDiscovery` counts what was not in the lake, and then forgets it.
                    failed = failed or error
            await asyncio.sleep(time.perf_counter() - began)
        if failed is not None:
            raise failed

    def _in_turn(self) -> list[TieredTable]:
        """Return all tables, first those after the one that got no answer: the server of that one alone may hang."""
        tables = self._tables.all()
        first = 1 + next((at for at, each in enumerate(tables) if each.status.table_id == self._unanswered), -1)
        return [*tables[first:], *tables[:first]]

    def _count(self, status: TieringStatus) -> None:
        buckets = self._storage.buckets(status.path, wait_for_leaders=False)
        # The table may have been dropped meanwhile, and another may have its name.
        if self._tables.get(status.table_id) is not None and all(
            info.bucket.table_id == status.table_id for info in buckets
        ):
            self._backlogs.replace(status.table_id, buckets)
