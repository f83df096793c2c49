"""Background jobs of the server's own tables: they are opened, and KV snapshots of them are taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.server.core import gc_tuning
from fluss_tiering.server.core.lake.backlogs import Backlogs
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.storage.protocol import TableStorage

_OPENED_AT_ONCE: Final = 10
"""The number of tables that one call opens. One call for each table would keep the event loop busy for seconds."""
_COLLECTED_AT_ONCE: Final = 50
"""The number of KV snapshots that are claimed, and then deleted, at a time."""

logger = structlog.get_logger(__name__)


class TableOpening:
    """Opens all tables and counts their backlogs, so that damaged ones are found before a client needs them.

    Open tables stay open, and their backlogs are followed.
    """

    def __init__(self, threads: ServerThreads, storage: TableStorage, backlogs: Backlogs) -> None:
        self._threads = threads
        self._storage = storage
        self._backlogs = backlogs
        self._loaded = False

    async def run_once(self) -> None:
        """Open the tables that are not open. The first run belongs to the loading of the server."""
        tables = await self._threads.storage(self._storage.tables)
        for first in range(0, len(tables), _OPENED_AT_ONCE):
            started = time.perf_counter()
            await self._threads.storage(self._open, tables[first : first + _OPENED_AT_ONCE])
            if not self._loaded:
                gc_tuning.keep_loaded()
            # Calls of clients come first: opening takes half of the time at most.
            await asyncio.sleep(time.perf_counter() - started)
        self._loaded = True

    def _open(self, tables: Iterable[TableInfo]) -> None:
        for table in tables:
            try:
                buckets = self._storage.buckets(table.path)
                # A commit whose client went away may not have counted.
                if not self._backlogs.is_current(table.table_id):
                    self._backlogs.count(table.table_id, buckets)
            except FlussTieringError as error:
                if error.code is not ErrorCode.TABLE_NOT_EXIST:
                    # A round has to tell what is the matter.
                    self._backlogs.cannot_count(table.table_id)
                    logger.error(
                        "table cannot be used", table=str(table.path), code=error.code.value, error=error.message
                    )


async def take_kv_snapshots(threads: ServerThreads, storage: TableStorage, managers: Managers) -> None:
    """Take a KV snapshot of each bucket, and delete old snapshots that no lease pins.

    Args:
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
    await collect_kv_snapshots(threads, storage, managers)


async def collect_kv_snapshots(threads: ServerThreads, storage: TableStorage, managers: Managers) -> int:
    """Delete old KV snapshots that no lease pins, and return their number.

    The control thread only claims the snapshots, some at a time. They are found and deleted in a storage thread. One
    that cannot be deleted keeps no other, which would fill the disk.

    Args:
        managers: The managers, which know the leases.

    Raises:
        FlussTieringError: CORRUPT_DATA if a lease could not be loaded, so that no snapshot may be deleted.
    """
    deleted = 0
    for table in await threads.storage(storage.tables):
        if not table.has_primary_key:
            continue
        old = await threads.storage(_collectable, storage, table.path)
        for first in range(0, len(old), _COLLECTED_AT_ONCE):
            claimed = await threads.control(managers.claim_for_collection, old[first : first + _COLLECTED_AT_ONCE])
            try:
                deleted += await threads.storage(storage.delete_kv_snapshots, claimed)
            except FlussTieringError as error:
                if error.code is not ErrorCode.STORAGE:
                    raise
                logger.error("KV snapshots cannot be deleted", table=str(table.path), error=error.message)
            finally:
                await threads.control(managers.leases.pins.collected, claimed)
    if deleted:
        logger.info("KV snapshots collected", snapshots=deleted)
    return deleted


def _collectable(storage: TableStorage, path: TablePath) -> Sequence[tuple[TableBucket, int]]:
    try:
        return storage.collectable_kv_snapshots(path)
    except FlussTieringError as error:
        if error.code in {ErrorCode.CORRUPT_DATA, ErrorCode.STORAGE}:
            # One damaged table must not keep the snapshots of the others, which would fill the disk.
            logger.error("KV snapshots are not collected", table=str(path), error=error.message)
        elif error.code is not ErrorCode.TABLE_NOT_EXIST:
            raise
        return ()
