"""Makes tiering follow the tables of a Fluss cluster, which any client of Fluss creates, alters and drops."""

from __future__ import annotations

import asyncio
import asyncio
from collections.abc import Mapping, Sequence

import structlog

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.server.coordinator import Coordinator
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.fluss.storage import FlussStorage

log = structlog.get_logger(__name__)


class TableDiscovery:
    """Looks at the cluster's tables: `turn` is a background job, and may be called besides."""

    def __init__(self, storage: FlussStorage, coordinator: Coordinator, threads: ServerThreads) -> None:
        self._storage = storage
        self._coordinator = coordinator
        self._threads = threads
        self._followed: dict[int, TableInfo] = {}
        self._told: dict[TablePath, str] = {}
        self._turn = asyncio.Lock()

    async def turn(self) -> None:
        """Registers tables that are new, redefines altered ones and forgets those that were dropped (S12, S20).

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
        present = {table.table_id: table for table in tables}
        for table_id, table in list(self._followed.items()):
            if table_id not in present and table.path not in unusable:
                self._coordinator.forget_table(table_id)
                del self._followed[table_id]
        tiering = self._coordinator.tiering
        for table in tables:
            before = self._followed.get(table.table_id)
            if before is None:
                tiering.register(table)
            elif before.descriptor.properties != table.descriptor.properties:
                tiering.redefine(table)
            self._followed[table.table_id] = table

    def _tell(self, unusable: Mapping[TablePath, FlussTieringError]) -> None:
        for path, error in unusable.items():
            if self._told.get(path) != error.message:
                log.warning("table is not tiered", table=str(path), code=error.code.value, why=error.message)
        self._told = {path: error.message for path, error in unusable.items()}
