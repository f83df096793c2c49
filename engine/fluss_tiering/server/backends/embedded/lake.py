"""Lake snapshots of the server's own tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import BucketInfo, TableBucket, TableInfo
from fluss_tiering.server.core.lake.merging import (
    CommitRegistration,
    merge_commit,
    prepared_offsets,
    require_same_offsets,
)
from fluss_tiering.server.core.managers import Managers, no_offsets_file
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.storage.protocol import TableStorage

logger = structlog.get_logger(__name__)


class OwnLakeSnapshots:
    """A `LakeService` for lake snapshots that only this server's store knows."""

    def __init__(self, threads: ServerThreads, storage: TableStorage, managers: Managers) -> None:
        self._threads = threads
        self._storage = storage
        self._managers = managers
        self._lake = managers.lake
        self._fitting: set[int] = set()

    async def newest(self, table: TableInfo) -> LakeSnapshot | None:
        """Return the newest lake snapshot of a table: see `LakeService`."""
        newest = await self._threads.control(self._lake.newest, table.table_id)
        if newest is not None:
            await self._require_same_logs(newest)
        return newest

    async def snapshot(self, table: TableInfo, snapshot_id: int) -> LakeSnapshot | None:
        """Return the lake snapshot of an id: see `LakeService`."""
        known = await self._threads.control(self._lake.known, table.table_id, snapshot_id)
        return None if known is None else await self._threads.storage(known.unpack)

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
        newest = await self._threads.control(self._managers.newest_of_round, table.table_id, tiering_epoch)
        if newest is not None:
            await self._require_same_logs(newest)
        previous = None if ignore_previous else newest
        merged = await self._threads.storage(prepared_offsets, table, buckets, previous, log_end_offsets)
        return await self._threads.storage(self._storage.write_lake_offsets, table.table_id, merged)

    async def commit(self, commit: CommitRegistration) -> None:
        """Register a lake snapshot: see `LakeService`."""
        table = commit.table
        try:
            has_offsets_file = await self._threads.storage(
                self._storage.has_lake_offsets, table.table_id, commit.offsets_path
            )
            buckets = await self._threads.storage(self._storage.buckets, table.path)
            await self._register(commit, buckets, has_offsets_file=has_offsets_file)
            # Before the answer, so that the table does not count as behind when its round ends.
            await self._threads.storage(self._managers.backlogs.tiered, table.table_id, commit.log_end_offsets)
        except FlussTieringError as error:
            await self._threads.control(self._managers.note_refused_commit, commit, error)
            raise
        await self._tidy(commit)

    async def _register(
        self, commit: CommitRegistration, buckets: Sequence[BucketInfo], *, has_offsets_file: bool
    ) -> None:
        table_id, registered = commit.table.table_id, False
        while not registered:
            newest = await self._threads.control(self._managers.newest_of_round, table_id, commit.tiering_epoch)
            if not has_offsets_file:
                raise no_offsets_file(commit)
            known = await self.snapshot(commit.table, commit.snapshot_id)
            if known is not None:
                await self._threads.storage(require_same_offsets, commit, known)
                return
            merged = await self._threads.storage(merge_commit, commit, buckets, newest)
            # It is not registered if another call made a newer lake snapshot meanwhile, maybe the same call again.
            registered = await self._threads.control(self._managers.commit_lake_snapshot, merged)

    async def _require_same_logs(self, newest: LakeSnapshot) -> None:
        """Refuse tables that are older than their newest lake snapshot. They only become so while no server runs."""
        table_id = newest.table_id
        if table_id in self._fitting:
            return
        known = await self._threads.control(self._lake.known, table_id, newest.snapshot_id)
        if known is not None:
            # A file that is gone proves nothing.
            await self._threads.storage(self._storage.has_lake_offsets, table_id, known.offsets_path)
        self._fitting.add(table_id)

    async def _tidy(self, commit: CommitRegistration) -> None:
        table = commit.table
        try:
            kept = await self._threads.control(self._lake.offsets_paths, table.table_id)
            await self._threads.storage(self._storage.delete_lake_offsets, table.table_id, commit.offsets_path, kept)
        except FlussTieringError as error:
            # The commit is registered. The files are deleted after the next one.
            logger.warning("old offsets files were not deleted", table=str(table.path), error=error.message)
