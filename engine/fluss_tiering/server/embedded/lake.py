"""Lake snapshots of the server's own tables."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.server.lake.manager import CommitRegistration
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.protocol import TableStorage

logger = structlog.get_logger(__name__)


class OwnLakeSnapshots:
    """A `LakeService` for lake snapshots that only this server's store knows.

    Args:
        threads: The threads of the server.
        storage: The tables.
        managers: The managers.
    """

    def __init__(self, threads: ServerThreads, storage: TableStorage, managers: Managers) -> None:
        self._threads = threads
        self._storage = storage
        self._managers = managers
        self._lake = managers.lake

    async def newest(self, table: TableInfo) -> LakeSnapshot | None:
        """Return the newest lake snapshot of a table: see `LakeService`."""
        return await self._threads.control(self._lake.newest, table.table_id)

    async def snapshot(self, table: TableInfo, snapshot_id: int) -> LakeSnapshot | None:
        """Return the lake snapshot of an id: see `LakeService`."""
        return await self._threads.control(self._lake.snapshot, table.table_id, snapshot_id)

    async def prepare(
        self,
        table: TableInfo,
        tiering_epoch: int,
        log_end_offsets: Mapping[TableBucket, int],
        *,
        ignore_previous: bool,
    ) -> str:
        """Write the offsets file of a lake snapshot: see `LakeService`."""
        buckets = await self._threads.storage(self._storage.buckets, table.path)
        merged = await self._threads.control(
            self._managers.prepare_lake_snapshot,
            table,
            tiering_epoch,
            buckets,
            log_end_offsets,
            ignore_previous=ignore_previous,
        )
        return await self._threads.storage(self._storage.write_lake_offsets, table.table_id, merged)

    async def commit(self, commit: CommitRegistration) -> None:
        """Register a lake snapshot: see `LakeService`."""
        table = commit.table
        has_offsets_file = await self._threads.storage(
            self._storage.has_lake_offsets, table.table_id, commit.offsets_path
        )
        buckets = await self._threads.storage(self._storage.buckets, table.path)
        await self._threads.control(
            self._managers.commit_lake_snapshot, commit, buckets, has_offsets_file=has_offsets_file
        )
        await self._tidy(commit)

    async def _tidy(self, commit: CommitRegistration) -> None:
        table = commit.table
        try:
            kept = await self._threads.control(self._lake.offsets_paths, table.table_id)
            await self._threads.storage(self._storage.delete_lake_offsets, table.table_id, commit.offsets_path, kept)
        except FlussTieringError as error:
            # The commit is registered. The files are deleted after the next one.
            logger.warning("old offsets files were not deleted", table=str(table.path), error=error.message)
