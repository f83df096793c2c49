"""Calls of the LakeTiering service that watch statuses and resume failed tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.core.tiering.broadcaster import StatusWatcher
from fluss_tiering.server.core.tiering.manager import LakeTieringManager
from fluss_tiering.server.edge.callers.identity import caller
from fluss_tiering.server.services.reads import StatusEntries
from fluss_tiering.server.services.table_lookup import StorageLookup
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.checks import bounded
from fluss_tiering.wire.tables import path_from_pb, path_to_pb

_SIGN_OF_LIFE_S: Final = 10.0
"""The longest time between two messages to a watcher, so that it can tell an idle server from a lost one."""

_TABLES_AT_ONCE: Final = 50


class StatusCalls:
    """Watches statuses and resumes tables.

    Args:
        threads: The threads of the server.
        tiering: The tables that are tiered.
        tables: Tells which tables do not exist.
        entries: The serialized statuses that were sent before.
    """

    def __init__(
        self, threads: ServerThreads, tiering: LakeTieringManager, tables: StorageLookup, entries: StatusEntries
    ) -> None:
        self._threads = threads
        self._tiering = tiering
        self._tables = tables
        self._entries = entries

    async def watch(self, request: pb.WatchTieringStatusesRequest) -> AsyncIterator[bytes]:
        """Yield the watched statuses, then each change, until the watcher or the server ends the stream.

        Each item is a serialized WatchTieringStatusesResponse.
        """
        paths = [path_from_pb(each) for each in bounded(request, "table_paths", request.table_paths)]
        for error in (await self._tables.missing(paths)).values():
            raise error
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        sees = caller().sees
        watcher = StatusWatcher(paths, lambda: loop.call_soon_threadsafe(news.set))
        try:
            await self._threads.control(self._tiering.watch, watcher, paths)
            while True:
                news.clear()
                changes = watcher.take()
                yield self._changes(
                    [each for each in changes.statuses if sees(each.path)],
                    [path for path in changes.removed if sees(path)],
                )
                try:
                    await asyncio.wait_for(news.wait(), _SIGN_OF_LIFE_S)
                except TimeoutError:
                    continue
        finally:
            self._tiering.broadcaster.discard(watcher)

    async def resume(self, request: pb.ResumeTablesRequest) -> pb.ResumeTablesResponse:
        """Make failed tables Pending at once, and Scheduled ones if the request says so, each on its own."""
        paths = [path_from_pb(each) for each in bounded(request, "table_paths", request.table_paths)]
        missing = await self._tables.missing(paths)
        present = [path for path in dict.fromkeys(paths) if path not in missing]
        resumed: list[TieringStatus | FlussTieringError] = []
        for first in range(0, len(present), _TABLES_AT_ONCE):
            some = present[first : first + _TABLES_AT_ONCE]
            resumed += await self._threads.control(self._tiering.resume, some, request.include_scheduled)
        answers: dict[TablePath, TieringStatus | FlussTieringError] = {
            **missing,
            **dict(zip(present, resumed, strict=True)),
        }
        return pb.ResumeTablesResponse(resumed_tables=[wire.resumed_to_pb(path, answers[path]) for path in paths])

    def _changes(self, statuses: Sequence[TieringStatus], removed: Sequence[TablePath]) -> bytes:
        # Both responses have the statuses in field 1, and serialized messages may be joined.
        end = pb.WatchTieringStatusesResponse(removed_tables=[path_to_pb(path) for path in removed])
        return self._entries.of(statuses) + end.SerializeToString()
