"""Creating, altering and dropping tables: each changes the storage first, and then tiering.

If the second step fails, the first is taken back. What can neither be finished nor taken back is unsettled, and a
background job tries it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, TablePath
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.server.tiering.options import LakeOptions
from fluss_tiering.storage.protocol import TableStorage

SETTLE_INTERVAL_MS: Final = 5_000
"""How often the server tries again what is unsettled."""

Alteration = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the options of a table after a change, given those before it."""

logger = structlog.get_logger(__name__)


class TableDefinitions:
    """The changes of tables. They run one at a time, because otherwise a dropped table could be registered last.

    Args:
        threads: The threads of the server.
        storage: The tables.
        managers: The managers.
    """

    def __init__(self, threads: ServerThreads, storage: TableStorage, managers: Managers) -> None:
        self._threads = threads
        self._storage = storage
        self._managers = managers
        self._lock = asyncio.Lock()
        self._unsettled: dict[TablePath, None] = {}

    async def create(self, path: TablePath, descriptor: TableDescriptor, *, ignore_if_exists: bool) -> TableInfo:
        """Create a table, and register it for tiering if its options ask for it.

        Raises:
            FlussTieringError: The errors of `TableStorage.create_table`; STORAGE if tiering cannot be recorded.
        """
        async with self._lock:
            try:
                table = await self._threads.storage(self._storage.create_table, path, descriptor)
            except FlussTieringError as error:
                if error.code is ErrorCode.TABLE_ALREADY_EXIST and ignore_if_exists:
                    return await self._threads.storage(self._storage.table, path)
                raise
            try:
                await self._threads.control(self._managers.tiering.register, table)
            except FlussTieringError:
                # A table that exists but is never tiered must not stay.
                await self._take_back(path, lambda: self._storage.drop_table(path))
                raise
            return table

    async def alter(self, path: TablePath, alteration: Alteration) -> TableInfo:
        """Change the options of a table, and apply them to its tiering.

        Raises:
            FlussTieringError: The errors of `TableStorage.alter_table`; STORAGE if tiering cannot be recorded.
        """
        async with self._lock:
            before = await self._threads.storage(self._storage.table, path)
            properties = alteration(before.descriptor.properties)
            LakeOptions.of(properties)
            if properties == before.descriptor.properties:
                return before
            table = await self._threads.storage(self._storage.alter_table, path, properties)
            try:
                await self._threads.control(self._managers.tiering.alter, table)
            except FlussTieringError:
                # Options that tiering does not follow must not stay.
                await self._take_back(path, lambda: self._storage.alter_table(path, before.descriptor.properties))
                raise
            return table

    async def drop(self, path: TablePath, *, ignore_if_not_exists: bool) -> None:
        """Drop a table, and then its leases and its tiering state. A drop that was half done is finished.

        Raises:
            FlussTieringError: The errors of `TableStorage.drop_table`; STORAGE if it cannot be recorded. The table does
                not exist then, and the server records it later.
        """
        async with self._lock:
            try:
                table = await self._threads.storage(self._storage.drop_table, path)
            except FlussTieringError as error:
                if error.code is not ErrorCode.TABLE_NOT_EXIST:
                    raise
                finished = await self._threads.control(self._managers.forget_dropped, path)
                if not finished and not ignore_if_not_exists:
                    raise
                return
            await self._threads.control(self._managers.forget_table, table.table_id, path)

    async def drop_partition(self, path: TablePath, values: tuple[str, ...]) -> None:
        """Drop a partition. Raises the errors of `TableStorage.drop_partition`."""
        async with self._lock:
            await self._threads.storage(self._storage.drop_partition, path, values)

    async def settle(self) -> None:
        """Try again what could neither be finished nor taken back. This is a background job.

        Raises:
            FlussTieringError: STORAGE or UNAVAILABLE if it still fails.
        """
        async with self._lock:
            await self._threads.control(self._managers.forget_dropped)
            for path in list(self._unsettled):
                try:
                    table = await self._threads.storage(self._storage.table, path)
                except FlussTieringError as error:
                    if error.code is not ErrorCode.TABLE_NOT_EXIST:
                        raise
                else:
                    await self._threads.control(self._managers.tiering.alter, table)
                del self._unsettled[path]

    async def _take_back(self, path: TablePath, step: Callable[[], object]) -> None:
        try:
            await self._threads.storage(step)
        except FlussTieringError as error:
            self._unsettled[path] = None
            logger.error("change of a table is half done", table=str(path), code=error.code.value, error=error.message)
