"""How far the logs of a cluster's tables reach, kept in memory: a scrape of metrics must not wait for the cluster."""

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
    """The buckets of tables that are tiered, as `run_once`, a background job, last saw them; `of` from any thread."""

    def __init__(self, threads: ServerThreads, storage: TableStorage, managers: Managers) -> None:
        self._threads = threads
        self._storage = storage
        self._tables = managers.tiering.tables
        self._seen: dict[int, Sequence[BucketInfo]] = {}

    def of(self, table_id: int) -> Sequence[BucketInfo] | None:
        """The buckets of a table; None while nobody has looked."""
        return self._seen.get(table_id)

    async def run_once(self) -> None:
        """Looks at the tables one after the other, and rests as long as it looked.

        Raises:
            FlussTieringError: UNAVAILABLE; what was seen before stays.
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
