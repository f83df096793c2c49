"""Lake snapshots of a Fluss cluster's tables. The cluster knows what is tiered, because others may tier its tables too.

Fluss 0.9.1 accepts every prepare and commit: late ones, repeated ones, ones that go backwards, and ones of a dropped
table. So this module checks each call before it goes to the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import BucketInfo, TableBucket, TableInfo
from fluss_tiering.server.core.lake.merging import (
    CommitRegistration,
    MergedCommit,
    merge_commit,
    pack_commit,
    prepared_offsets,
    require_same_offsets,
)
from fluss_tiering.server.core.managers import Managers, no_offsets_file
from fluss_tiering.server.core.threads import Locks, ServerThreads
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind
from fluss_tiering.storage.fluss.rpc.calls.lake import commit_lake_snapshot, lake_snapshot, prepare_lake_snapshot
from fluss_tiering.storage.fluss.rpc.calls.tables import table as table_call
from fluss_tiering.storage.fluss.rpc.client import AsyncFlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from fluss_tiering.storage.protocol import TableStorage

_WITHIN_S: Final = 20.0
"""The time limit of a call. It is shorter than the time that drivers wait for an answer."""

_UNREADABLE: Final = "lake table snapshot"
"""A part of the error message if the cluster cannot read the offsets file of a table's newest lake snapshot."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Newest:
    """A table's newest lake snapshot.

    Attributes:
        snapshot: The lake snapshot; None if there is none.
        unreadable: Whether the cluster cannot read its newest lake snapshot. Then `snapshot` is the newest that this
            server committed.
    """

    snapshot: LakeSnapshot | None
    unreadable: bool = False

    @property
    def offsets(self) -> Mapping[TableBucket, int]:
        """The offset up to which each bucket is in the lake."""
        return self.snapshot.log_end_offsets if self.snapshot else {}


class ClusterLakeSnapshots:
    """A `LakeService` for the tables of a cluster. It is used on the event loop only.

    Args:
        storage: The tables of the cluster.
        check: Raises an error unless this server certainly leads.
    """

    def __init__(
        self,
        client: AsyncFlussClient,
        threads: ServerThreads,
        storage: TableStorage,
        managers: Managers,
        check: Callable[[], None],
    ) -> None:
        self._check = check
        self._client = client
        self._threads = threads
        self._storage = storage
        self._managers = managers
        self._lake = managers.lake
        self._locks = Locks()

    async def newest(self, table: TableInfo) -> LakeSnapshot | None:
        """Return the newest lake snapshot of a table, whoever committed it.

        If the cluster cannot read its newest lake snapshot, return the newest that this server committed. The driver
        compares it with the lake table, and refuses a later one of another writer. The next commit makes the table
        readable again.
        """
        return (await self._newest(table)).snapshot

    async def snapshot(self, table: TableInfo, snapshot_id: int) -> LakeSnapshot | None:
        """Return the lake snapshot of an id; None if the cluster does not know it."""
        return await self._ask(table, snapshot_id)

    async def prepare(
        self,
        table: TableInfo,
        tiering_epoch: int,
        log_end_offsets: Mapping[TableBucket, int],
        *,
        ignore_previous: bool,
    ) -> str:
        """Have the coordinator write the offsets file: see `LakeService`."""
        async with self._locks.of(table.table_id):
            await self._require_present(table)
            newest = await self._newest(table)
            buckets = await self._threads.storage(self._storage.buckets, table.path)
            own = await self._threads.control(self._managers.newest_of_round, table.table_id, tiering_epoch)
            previous = None if ignore_previous else own
            offsets = await self._threads.storage(prepared_offsets, table, buckets, previous, log_end_offsets)
            return await self._prepare(table, offsets, ignore_previous=ignore_previous or newest.unreadable)

    async def commit(self, commit: CommitRegistration) -> None:
        """Register a lake snapshot: see `LakeService`.

        The cluster learns it first, then the store, so that the driver repeats the call after a crash in between.
        """
        table = commit.table
        try:
            async with self._locks.of(table.table_id):
                await self._commit(commit)
            await self._threads.storage(self._managers.backlogs.tiered, table.table_id, commit.log_end_offsets)
        except FlussTieringError as error:
            await self._threads.control(self._managers.note_refused_commit, commit, error)
            raise

    async def _commit(self, commit: CommitRegistration) -> None:
        table = commit.table
        await self._threads.control(self._managers.tiering.require_round, table.table_id, commit.tiering_epoch)
        await self._require_present(table)
        newest = await self._newest(table)
        if not newest.unreadable and await self._is_known(commit, newest):
            await self._record_known(commit)
            return
        buckets = await self._threads.storage(self._storage.buckets, table.path)
        own = await self._threads.control(self._lake.newest, table.table_id)
        merged = await self._threads.storage(merge_commit, commit, buckets, own)
        path = commit.offsets_path
        if newest.unreadable:
            # The cluster would merge the commit with offsets that it cannot read. The file that the commit names may be
            # the missing one.
            path = await self._prepare(table, merged.snapshot.log_end_offsets, ignore_previous=True)
            logger.warning("offsets that the cluster could not read are replaced", table=str(table.path), path=path)
        elif not await self._threads.storage(self._storage.has_lake_offsets, table.table_id, path):
            raise no_offsets_file(commit)
        offsets = await self._threads.storage(_present, merged.snapshot.log_end_offsets, buckets)
        # Checked again, because the steps before took time.
        await self._threads.control(self._managers.tiering.require_round, table.table_id, commit.tiering_epoch)
        self._check()
        await self._client.call(
            commit_lake_snapshot(table.table_id, commit.snapshot_id, path, offsets), within=_WITHIN_S
        )
        await self._threads.control(self._record, merged)

    async def _is_known(self, commit: CommitRegistration, newest: _Newest) -> bool:
        """Return whether the cluster knows the commit already, so that it is a repetition.

        Raises:
            FlussTieringError: INVALID_REQUEST if the cluster knows that snapshot with other offsets.
        """
        present = newest.snapshot
        if present is None:
            return False
        if present.snapshot_id != commit.snapshot_id:
            # Either this commit is an older one that comes late, or a late call of an older round came after it. In the
            # second case it is committed again.
            if not await self._threads.storage(_reaches, newest.offsets, commit.log_end_offsets):
                return False
            known = await self._ask(commit.table, commit.snapshot_id)
            if known is None:
                return False
            present = known
        await self._threads.storage(require_same_offsets, commit, present)
        return True

    async def _record_known(self, commit: CommitRegistration) -> None:
        """Put a commit that the cluster knew before into the store, if it is the newest one."""
        newest = await self._threads.control(self._lake.newest, commit.table.table_id)
        if newest is not None and newest.snapshot_id == commit.snapshot_id:
            merged = await self._threads.storage(pack_commit, commit, newest, newest)
            await self._threads.control(self._record, merged)

    def _record(self, merged: MergedCommit) -> None:
        """Put a commit into the store, once; in the control thread."""
        if self._lake.known(merged.snapshot.table_id, merged.snapshot.snapshot_id) is None:
            self._lake.record(merged)
        else:
            self._lake.learn(merged.snapshot)

    async def _newest(self, table: TableInfo) -> _Newest:
        try:
            snapshot = await self._ask(table, None)
        except FlussServerError as error:
            if error.fluss_error is not FlussError.UNKNOWN_SERVER_ERROR or _UNREADABLE not in error.server_message:
                raise
            own = await self._threads.control(self._lake.newest, table.table_id)
            logger.error(
                "the cluster cannot read the offsets of a lake snapshot that was committed",
                table=str(table.path),
                error=error.message,
                instead=None if own is None else own.snapshot_id,
            )
            return _Newest(own, unreadable=True)
        if snapshot is not None:
            await self._threads.control(self._lake.learn, snapshot)
        return _Newest(snapshot)

    async def _ask(self, table: TableInfo, snapshot_id: int | None) -> LakeSnapshot | None:
        try:
            snapshot: LakeSnapshot = await self._call(lake_snapshot(table.path, snapshot_id=snapshot_id))
        except FlussTieringError as error:
            if error.code is ErrorCode.LAKE_SNAPSHOT_NOT_EXIST:
                return None
            raise
        if snapshot.table_id != table.table_id:
            raise _replaced(table, snapshot.table_id)
        return snapshot

    async def _prepare(self, table: TableInfo, offsets: Mapping[TableBucket, int], *, ignore_previous: bool) -> str:
        # The cluster writes -1 for a bucket that is left out.
        tiered = {bucket: offset for bucket, offset in offsets.items() if offset >= 0}
        return await self._client.call(
            prepare_lake_snapshot(table.path, table.table_id, tiered, ignore_previous_offsets=ignore_previous),
            within=_WITHIN_S,
        )

    async def _require_present(self, table: TableInfo) -> None:
        """Raise TABLE_NOT_EXIST unless the path still names this table."""
        present = await self._call(table_call(table.path))
        if present.table_id != table.table_id:
            raise _replaced(table, present.table_id)

    async def _call(self, call: Call[Any, Any]) -> Any:  # noqa: ANN401 - the answer of any call
        # The coordinator writes lake snapshots, so it reads what it wrote. Another server may be a moment behind.
        return await self._client.call(replace(call, destination=ServerKind.COORDINATOR), within=_WITHIN_S)


def _reaches(newest: Mapping[TableBucket, int], log_end_offsets: Mapping[TableBucket, int]) -> bool:
    return all(newest.get(bucket, -1) >= offset for bucket, offset in log_end_offsets.items())


def _present(log_end_offsets: Mapping[TableBucket, int], buckets: Sequence[BucketInfo]) -> dict[TableBucket, int]:
    present = {info.bucket for info in buckets}
    return {bucket: offset for bucket, offset in log_end_offsets.items() if bucket in present}


def _replaced(table: TableInfo, table_id: int) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.TABLE_NOT_EXIST,
        f"table {table.path} with the id {table.table_id} was dropped: {table.path} is table {table_id} now; "
        "stop the round",
    )
