"""Creating, altering and dropping tables: each changes the storage first, and then tiering.

If the second step fails, the first is taken back. What can neither be finished nor taken back is unsettled, and a
background job tries it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from fluss_tiering.model.column_changes import ColumnChange
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot, is_switched_on
from fluss_tiering.model.table import TableBucket, TableDescriptor, TableInfo, TablePath, partition_name
from fluss_tiering.model.table_options import (
    LAKE_COMMIT_BRANCH,
    LAKE_LAYOUT,
    LAKE_PARTITION_BY,
    LAKE_SORT_BY,
    commit_branch_of,
)
from fluss_tiering.plural import counted
from fluss_tiering.server.core.backend_services import LakeService
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.core.tiering.policy import LakeOptions
from fluss_tiering.storage.protocol import TableStorage

SETTLE_INTERVAL_MS: Final = 5_000
"""How often the server tries again what is unsettled."""

Alteration = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the options of a table after a change, given those before it."""

_DROP_UNTIERED: Final = "With drop_untiered (--drop-untiered), it is dropped nevertheless, and these records are lost"

logger = structlog.get_logger(__name__)


class TableDefinitions:
    """The changes of tables. They run one at a time, because otherwise a dropped table could be registered last."""

    def __init__(self, threads: ServerThreads, storage: TableStorage, managers: Managers, lake: LakeService) -> None:
        self._threads = threads
        self._storage = storage
        self._managers = managers
        self._lake = lake
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
            await self._require_effect(before, properties)
            table = await self._threads.storage(self._storage.alter_table, path, properties)
            try:
                await self._threads.control(self._managers.tiering.alter, table)
            except FlussTieringError:
                # Options that tiering does not follow must not stay.
                await self._take_back(path, lambda: self._storage.alter_table(path, before.descriptor.properties))
                raise
            return table

    async def _require_effect(self, table: TableInfo, properties: Mapping[str, str]) -> None:
        """Check that options by which a round creates the lake table are not set when it is there."""
        before = table.descriptor.properties
        late = [
            option.key
            for option in (LAKE_LAYOUT, LAKE_PARTITION_BY, LAKE_SORT_BY)
            if option.key in properties and properties[option.key] != before.get(option.key)
        ]
        if late and await self._lake.newest(table) is not None:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"{late[0]} says how a round creates the lake table, and that of {table.path} exists: expected the "
                f"option before the first round; change the partitioning or the order of {table.lake_path} in Spark "
                "SQL (ALTER TABLE), and rounds follow",
            )

    async def alter_columns(self, path: TablePath, changes: Sequence[ColumnChange]) -> TableInfo:
        """Change the columns of a table, and resume it if it is parked.

        Raises:
            FlussTieringError: The errors of `TableStorage.alter_columns`.
        """
        async with self._lock:
            table = await self._threads.storage(self._storage.alter_columns, path, changes)
            try:
                await self._threads.control(self._managers.tiering.alter, table)
            except FlussTieringError as error:
                # Rows may have the new columns already, so that these stay.
                self._unsettled[path] = None
                logger.warning("an altered table is resumed later", table=str(path), error=error.message)
            return table

    async def drop(self, path: TablePath, *, ignore_if_not_exists: bool, drop_untiered: bool) -> int | None:
        """Drop a table, and then its leases and its tiering state. A drop that was half done is finished.

        Args:
            ignore_if_not_exists: Whether it is no error if the table does not exist.
            drop_untiered: Whether the table is dropped although it has records that are not in the lake.

        Returns:
            The number of records that were not in the lake; None if they could not be counted.

        Raises:
            FlussTieringError: The errors of `TableStorage.drop_table`; INVALID_TIERING_STATE if there are records that
                are not in the lake; STORAGE if it cannot be recorded. The table does not exist then, and the server
                records it later.
        """
        async with self._lock:
            try:
                untiered = await self._check_drop(path, None, drop_untiered=drop_untiered)
                table = await self._threads.storage(self._storage.drop_table, path)
            except FlussTieringError as error:
                if error.code is not ErrorCode.TABLE_NOT_EXIST:
                    raise
                finished = await self._threads.control(self._managers.forget_dropped, path)
                if not finished and not ignore_if_not_exists:
                    raise
                return 0
            await self._threads.control(self._managers.forget_table, table.table_id, path)
            return _total(untiered)

    async def drop_partition(self, path: TablePath, values: tuple[str, ...], *, drop_untiered: bool) -> int | None:
        """Drop a partition.

        Args:
            drop_untiered: Whether the partition is dropped although it has records that are not in the lake.

        Returns:
            The number of records that were not in the lake; None if they could not be counted.

        Raises:
            FlussTieringError: The errors of `TableStorage.drop_partition`; INVALID_TIERING_STATE if there are records
                that are not in the lake.
        """
        async with self._lock:
            untiered = await self._check_drop(path, values, drop_untiered=drop_untiered)
            await self._threads.storage(self._storage.drop_partition, path, values)
            # The listener of the embedded storage has done this already. A cluster tells of it later.
            for bucket in untiered or ():
                if bucket.partition_id is not None:
                    self._managers.backlogs.partition_dropped(bucket.table_id, bucket.partition_id)
            await self._threads.control(self._managers.tiering.note_lost)
            return _total(untiered)

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

    async def _check_drop(
        self, path: TablePath, values: tuple[str, ...] | None, *, drop_untiered: bool
    ) -> Mapping[TableBucket, int] | None:
        """Return how many records of each bucket of a table, or of one partition, are not in the lake.

        A table that was tiered before its tiering was switched off counts too: its lake table lacks what came later.
        What is written from now on until the drop is not among them, but the history of the table counts it.
        """
        table = await self._threads.storage(self._storage.table, path)
        what = str(path) if values is None else f"partition {partition_name(values)} of {path}"
        try:
            newest = await self._lake.newest(table)
            if newest is None and not is_switched_on(table):
                return {}
            untiered = await self._threads.storage(self._count_untiered, table, values, newest)
        except FlussTieringError as error:
            if drop_untiered:
                logger.warning("records that are not in the lake cannot be counted", of=what, error=error.message)
                return None
            raise FlussTieringError(
                error.code,
                f"{what}: the records that are not in the lake cannot be counted: {error.message}. {_DROP_UNTIERED}",
            ) from error
        records = sum(untiered.values())
        if records and not drop_untiered:
            where, done, then = "the lake", "tiered", ""
            if commit_branch_of(table.descriptor.properties) != LAKE_COMMIT_BRANCH.default:
                where, done, then = "main of the lake table", "published", f" and `fluss-tiering publish {path}`"
            raise FlussTieringError(
                ErrorCode.INVALID_TIERING_STATE,
                f"{what} has {counted(records, 'log record')} that {'is' if records == 1 else 'are'} not in {where}: "
                f"expected it to be {done} before the drop; run `fluss-tiering tier {path}`{then} first. "
                f"{_DROP_UNTIERED}",
            )
        return untiered

    def _count_untiered(
        self, table: TableInfo, values: tuple[str, ...] | None, newest: LakeSnapshot | None
    ) -> dict[TableBucket, int]:
        buckets = self._storage.buckets(table.path)
        # What is dropped is counted from these ends of the logs.
        self._managers.backlogs.follow([table.table_id])
        self._managers.backlogs.count(table.table_id, buckets)
        tiered = {} if newest is None else newest.log_end_offsets
        return {
            info.bucket: max(0, info.log_end_offset - max(0, tiered.get(info.bucket, 0)))
            for info in buckets
            if values in (None, info.partition_values)
        }

    async def _take_back(self, path: TablePath, step: Callable[[], object]) -> None:
        try:
            await self._threads.storage(step)
        except FlussTieringError as error:
            self._unsettled[path] = None
            logger.error("change of a table is half done", table=str(path), code=error.code.value, error=error.message)


def _total(untiered: Mapping[TableBucket, int] | None) -> int | None:
    return None if untiered is None else sum(untiered.values())
