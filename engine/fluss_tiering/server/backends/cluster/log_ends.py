"""Looks how far the logs of a cluster's tables reach, because statuses and metrics must not wait for the cluster."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.core.tiering.states import TieredTable
from fluss_tiering.storage.protocol import TableStorage

_UNUSABLE: Final = frozenset({ErrorCode.INVALID_TABLE, ErrorCode.CORRUPT_DATA, ErrorCode.AUTHORIZATION})


class ClusterLogEnds:
    """Counts the backlogs of tiered tables. `run_once` is a background job.

    Args:
        threads: The threads of the server.
        storage: The tables of the cluster.
        managers: The managers.
    """

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
