"""Makes tiering follow the tables of a Fluss cluster, which any client of Fluss creates, alters and drops."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.fluss.storage import FlussStorage

logger = structlog.get_logger(__name__)


class TableDiscovery:
    """Looks at the cluster's tables: `run_once` is a background job, and may be called besides."""

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
        """Tables that can be used, as they were last seen."""
        return len(self._followed)

    async def run_once(self) -> None:
        """Register new tables, apply the options of altered ones, and forget those that were dropped.

        A table that cannot be used is told once, and keeps what is known of it; the others go on.

        Raises:
            FlussTieringError: UNAVAILABLE when the cluster cannot be asked; nothing was changed then. STORAGE.
        """
        # One after the other: tables that were listed earlier must not be followed later.
        async with self._turn:
            tables = await self._threads.storage(self._storage.listed.refresh)
            unusable = self._storage.listed.unusable()
            self._tell(unusable)
            await self._threads.control(self._follow, tables, frozenset(unusable))

    def _follow(self, tables: Sequence[TableInfo], unusable: frozenset[TablePath]) -> None:
        tiering = self._managers.tiering
        self._forget({table.table_id for table in tables}, unusable)
        for table in tables:
            before = self._followed.get(table.table_id)
            if before is None:
                tiering.register(table)
            elif before.descriptor.properties != table.descriptor.properties:
                tiering.alter(table)
            self._followed[table.table_id] = table

    def _forget(self, present: set[int], unusable: frozenset[TablePath]) -> None:
        known = {table_id: table.path for table_id, table in self._followed.items()}
        known |= {table.status.table_id: table.status.path for table in self._managers.tiering.tables.all()}
        absent = {id_ for id_, path in known.items() if id_ not in present and path not in unusable}
        # One that was never listed may have been created here since the list was made: the next one has it.
        dropped = {table_id for table_id in absent if table_id in self._followed or table_id in self._absent}
        for table_id in dropped:
            self._managers.forget_table(table_id)
            self._followed.pop(table_id, None)
        self._absent = absent - dropped

    def _tell(self, unusable: Mapping[TablePath, FlussTieringError]) -> None:
        for path, error in unusable.items():
            if self._told.get(path) != error.message:
                logger.warning("table is not tiered", table=str(path), code=error.code.value, why=error.message)
        self._told = {path: error.message for path, error in unusable.items()}
