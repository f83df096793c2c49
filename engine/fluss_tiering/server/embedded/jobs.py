"""Background jobs of the server's own tables: they are opened, and KV snapshots of them are taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.server import gc_tuning
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.protocol import TableStorage

_OPENED_AT_ONCE: Final = 10
"""The number of tables that one call opens. One call for each table would keep the event loop busy for seconds."""

logger = structlog.get_logger(__name__)


class TableOpening:
    """Opens all tables, so that damaged ones are found before a client needs them. Open tables stay open.

    Args:
        threads: The threads of the server.
        storage: The tables.
    """

    def __init__(self, threads: ServerThreads, storage: TableStorage) -> None:
        self._threads = threads
        self._storage = storage
        self._loaded = False

    async def run_once(self) -> None:
        """Open the tables that are not open. The first run belongs to the loading of the server."""
        tables = await self._threads.storage(self._storage.tables)
        for first in range(0, len(tables), _OPENED_AT_ONCE):
            started = time.perf_counter()
            await self._threads.storage(_open, self._storage, tables[first : first + _OPENED_AT_ONCE])
            if not self._loaded:
                gc_tuning.keep_loaded()
            # Calls of clients come first: opening takes half of the time at most.
            await asyncio.sleep(time.perf_counter() - started)
        self._loaded = True


async def take_kv_snapshots(threads: ServerThreads, storage: TableStorage, managers: Managers) -> None:
    """Take a KV snapshot of each bucket, and delete old snapshots that no lease pins.

    Args:
        threads: The threads of the server.
        storage: The tables.
        managers: The managers, which know the leases.

    Raises:
        FlussTieringError: CORRUPT_DATA if a lease could not be loaded, so that no snapshot may be deleted.
    """
    for table in await threads.storage(storage.tables):
        if not table.has_primary_key:
            continue
        try:
            await threads.storage(storage.take_kv_snapshots, table.path)
        except FlussTieringError as error:
            if error.code is not ErrorCode.TABLE_NOT_EXIST:
                logger.error("KV snapshot failed", table=str(table.path), code=error.code.value, error=error.message)
    await threads.control(managers.collect_kv_snapshots)


def _open(storage: TableStorage, tables: Iterable[TableInfo]) -> None:
    for table in tables:
        try:
            storage.buckets(table.path)
        except FlussTieringError as error:
            if error.code is not ErrorCode.TABLE_NOT_EXIST:
                logger.error("table cannot be used", table=str(table.path), code=error.code.value, error=error.message)
