"""The log ends of a cluster's tables, kept in memory, because a scrape of metrics must not wait for the cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.protocol import TableStorage

_UNUSABLE: Final = frozenset({ErrorCode.TABLE_NOT_EXIST, ErrorCode.INVALID_TABLE, ErrorCode.CORRUPT_DATA})


class ClusterLogEnds:
    """The buckets of tiered tables, as of the last look. `run_once` is a background job.

    Args:
        threads: The threads of the server.
        storage: The tables of the cluster.
        managers: The managers.
    """

    def __init__(self, threads: ServerThreads, storage: TableStorage, managers: Managers) -> None:
        self._threads = threads
        self._storage = storage
        self._tables = managers.tiering.tables
        self._seen: dict[int, Sequence[BucketInfo]] = {}

    def of(self, table_id: int) -> Sequence[BucketInfo] | None:
        """Return the buckets of a table, None before the first look. This method may be called from any thread."""
        return self._seen.get(table_id)

    async def run_once(self) -> None:
        """Look at one table after the other, and pause after each look for as long as the look took.

        Raises:
            FlussTieringError: UNAVAILABLE if the cluster cannot be asked. Buckets that were seen before are kept.
        """
        statuses = [table.status for table in self._tables.all()]
        for table_id in self._seen.keys() - {status.table_id for status in statuses}:
            del self._seen[table_id]
        for status in statuses:
            began = time.perf_counter()
            try:
                self._seen[status.table_id] = await self._threads.storage(self._storage.buckets, status.path)
            except FlussTieringError as error:
                if error.code not in _UNUSABLE:
                    raise
                self._seen.pop(status.table_id, None)
            await asyncio.sleep(time.perf_counter() - began)
