"""The part of the LakeTiering service that lists and watches statuses, and resumes failed tables."""

# ruff: noqa: N802 - the methods are named by the API

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import StatusChanges, TieringStatus
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.rpc.lake_snapshots import LakeSnapshotsServicer
from fluss_tiering.server.tiering.broadcaster import StatusWatcher
from fluss_tiering.server.tiering.options import LakeOptions
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.checks import bounded
from fluss_tiering.wire.tables import path_from_pb, path_to_pb

_SIGN_OF_LIFE_S: Final = 10.0
"""A watcher hears something so often, so that it can tell an idle server from one that is gone."""


class StatusesServicer(LakeSnapshotsServicer):
    """Statuses over gRPC."""

    def __init__(self, components: ServerComponents) -> None:
        super().__init__(components)
        self._entries = StatusEntries()
        self._backend = components.backend

    async def ListTieringStatuses(  # type: ignore[override] # serialised already, which the interceptor allows
        self, request: pb.ListTieringStatusesRequest, context: object
    ) -> bytes:
        """The status of a table, or of all (S16): a serialised ListTieringStatusesResponse."""
        path = path_from_pb(request.table_path) if request.HasField("table_path") else None
        try:
            statuses = await self._threads.control(self._tiering.statuses, path)
        except FlussTieringError:
            if path is None:
                raise
            for error in (await self._missing([path])).values():
                raise error from None
            statuses = await self._threads.control(self._tiering.statuses, path)
        return self._entries.of(statuses)

    async def WatchTieringStatuses(  # type: ignore[override] # likewise
        self, request: pb.WatchTieringStatusesRequest, context: object
    ) -> AsyncIterator[bytes]:
        """All that are watched, then each change, until the watcher or the server ends it.

        Yields a serialised WatchTieringStatusesResponse each time.
        """
        paths = [path_from_pb(each) for each in bounded(request, "table_paths", request.table_paths)]
        for error in (await self._missing(paths)).values():
            raise error
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        watcher = StatusWatcher(paths, lambda: loop.call_soon_threadsafe(news.set))
        try:
            await self._threads.control(self._tiering.watch, watcher, paths)
            while True:
                news.clear()
                yield self._changes(watcher.take())
                try:
                    await asyncio.wait_for(news.wait(), _SIGN_OF_LIFE_S)
                except TimeoutError:
                    continue
        finally:
            self._tiering.broadcaster.discard(watcher)

    async def ResumeTables(self, request: pb.ResumeTablesRequest, context: object) -> pb.ResumeTablesResponse:
        """Ends the rest of failed tables, each on its own (S19)."""
        paths = [path_from_pb(each) for each in bounded(request, "table_paths", request.table_paths)]
        missing = await self._missing(paths)
        present = [path for path in dict.fromkeys(paths) if path not in missing]
        resumed = await self._threads.control(self._tiering.resume, present)
        answers: dict[TablePath, TieringStatus | FlussTieringError] = {
            **missing,
            **dict(zip(present, resumed, strict=True)),
        }
        return pb.ResumeTablesResponse(resumed_tables=[wire.resumed_to_pb(path, answers[path]) for path in paths])

    async def _missing(self, paths: Sequence[TablePath]) -> dict[TablePath, FlussTieringError]:
        """Those that do not exist, and why; the storage, which may be away, is asked for none that is tiered.

        A table that a client of a cluster made a moment ago is tiered after this.
        """
        unknown = await self._threads.control(self._tiering.untiered, paths)
        if not unknown:
            return {}
        found = await self._threads.storage(self._look_for, unknown)
        if any(isinstance(each, TableInfo) and _is_tiered(each) for each in found):
            await self._backend.refresh_tables()
        answers = zip(unknown, found, strict=True)
        return {path: answer for path, answer in answers if isinstance(answer, FlussTieringError)}

    def _look_for(self, paths: Sequence[TablePath]) -> list[TableInfo | FlussTieringError]:
        answers: list[TableInfo | FlussTieringError] = []
        for path in paths:
            try:
                answers.append(self._storage.table(path))
            except FlussTieringError as error:
                answers.append(error)
        return answers

    def _changes(self, changes: StatusChanges) -> bytes:
        # Both answers have the statuses in field 1.
        removed = pb.WatchTieringStatusesResponse(removed_tables=[path_to_pb(path) for path in changes.removed])
        return self._entries.of(changes.statuses) + removed.SerializeToString()


def _is_tiered(table: TableInfo) -> bool:
    return LakeOptions.of(table.descriptor.properties).enabled


class StatusEntries:
    """Statuses as serialised entries, kept while a table's status stays the same: many ask for all, few change."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[TieringStatus, bytes]] = {}

    def of(self, statuses: Sequence[TieringStatus]) -> bytes:
        """The statuses, as a message with nothing else; in the event loop alone."""
        entries = []
        for status in statuses:
            kept = self._kept.get(status.table_id)
            if kept is None or kept[0] is not status:
                kept = (status, wire.status_to_bytes(status))
                self._kept[status.table_id] = kept
            entries.append(kept[1])
        if len(self._kept) > 2 * len(entries) + _KEPT_BESIDES:
            self._kept = {status.table_id: self._kept[status.table_id] for status in statuses}
        return b"".join(entries)


_KEPT_BESIDES: Final = 10_000
"""Entries of tables that were not asked for, or are gone, that are kept at most, beside as many as were asked for."""
