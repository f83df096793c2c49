"""The LakeTiering service."""

# ruff: noqa: N802 - the methods are named by the API

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringServicer as GeneratedLakeTieringServicer
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import (
    ROUND_FORMAT,
    Claim,
    HeartbeatEntry,
    TieringRound,
    TieringStatus,
)
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.core.lake.merging import CommitRegistration
from fluss_tiering.server.core.leases.attempts import outcome_of
from fluss_tiering.server.core.store.records import LeaseAttempt, RoundsPage
from fluss_tiering.server.core.tiering.broadcaster import StatusWatcher
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat
from fluss_tiering.server.core.tiering.policy import LakeOptions
from fluss_tiering.server.core.tiering.states import RoundOwner
from fluss_tiering.server.edge.callers.identity import caller
from fluss_tiering.server.services.pages import Collected, StatusEntries, page_size_of, token_of_path
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.checks import MAX_BUCKET_ENTRIES, bounded, bounded_total, identifier, optional_token, required
from fluss_tiering.wire.errors import error_to_pb
from fluss_tiering.wire.tables import path_from_pb, path_to_pb

_TABLES_AT_ONCE: Final = 50
"""Of how many tables one turn of the control thread reads rounds, so that other calls come in between."""
_DEFAULT_ROUNDS: Final = 20
_MAX_ROUNDS: Final = 1000
_ROUNDS_AT_ONCE: Final = 400
_SIGN_OF_LIFE_S: Final = 10.0
"""The longest time between two messages to a watcher, so that it can tell an idle server from a lost one."""


class LakeTieringServicer(GeneratedLakeTieringServicer):
    """Tiering over gRPC: rounds, statuses and lake snapshots."""

    def __init__(self, components: ServerComponents) -> None:
        self._threads = components.threads
        self._storage = components.storage
        self._tiering = components.managers.tiering
        self._lake = components.backend.lake
        self._refresh = components.backend.refresh_tables
        self._tokens = components.executor_tokens
        self._entries = StatusEntries()

    async def LakeTieringHeartbeat(
        self, request: pb.LakeTieringHeartbeatRequest, context: object
    ) -> pb.LakeTieringHeartbeatResponse:
        """Take the reports of rounds, and hand out a pending table if the driver asks for one."""
        requester = None
        if request.request_table:
            _check_format(request)
            lease_id = identifier(request, "lease_id", request.lease_id) if request.HasField("lease_id") else ""
            requester = RoundOwner(lease_id, optional_token(request), _driver(request, request.driver))
        heartbeat = Heartbeat(
            tiering=_entries(bounded(request, "tiering_tables", request.tiering_tables)),
            finished=_entries(bounded(request, "finished_tables", request.finished_tables)),
            failed=_entries(bounded(request, "failed_tables", request.failed_tables)),
            force_finished=frozenset(bounded(request, "force_finished_tables", request.force_finished_tables)),
            requester=requester,
        )
        reports = [
            wire.maintenance_from_pb(each) for each in bounded(request, "maintained_tables", request.maintained_tables)
        ]
        # A driver that asks for any table gets one for which it has the role.
        answer = await self._threads.control(self._tiering.heartbeat, heartbeat, caller().tables)
        if reports:
            await self._threads.control(self._tiering.count_maintenance, reports)
        if answer.claim is not None:
            answer = replace(answer, claim=self._with_token(answer.claim))
        return wire.answer_to_pb(
            answer, tiering=heartbeat.tiering, finished=heartbeat.finished, failed=heartbeat.failed
        )

    async def ClaimTables(self, request: pb.ClaimTablesRequest, context: object) -> pb.ClaimTablesResponse:
        """Claim tables by name, each on its own."""
        _check_format(request)
        owner = RoundOwner(
            identifier(request, "lease_id", request.lease_id),
            optional_token(request),
            _driver(request, request.driver),
            origin=wire.checked_origin(request.origin) if request.HasField("origin") else None,
        )
        paths = [path_from_pb(each) for each in bounded(request, "table_paths", request.table_paths)]
        if len(set(paths)) < len(paths):
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, "ClaimTablesRequest names a table twice: claim it once")
        missing = await self._missing(paths)
        present = [path for path in paths if path not in missing]
        claimed = await self._threads.control(self._tiering.claim, present, owner)
        with_tokens = [each if isinstance(each, FlussTieringError) else self._with_token(each) for each in claimed]
        answers = {**missing, **dict(zip(present, with_tokens, strict=True))}
        return pb.ClaimTablesResponse(claims=[wire.claim_to_pb(path, answers[path]) for path in paths])

    def _with_token(self, claim: Claim) -> Claim:
        if self._tokens is None:
            return claim
        return replace(claim, executor_token=self._tokens.for_round(claim.table_id, claim.tiering_epoch))

    async def CancelTiering(self, request: pb.CancelTieringRequest, context: object) -> pb.CancelTieringResponse:
        """Fail the running rounds of an attempt."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        token = optional_token(request)
        ended = await self._threads.control(self._tiering.cancel, lease_id, token, request.reason)
        return pb.CancelTieringResponse(
            stale_attempt=ended is None, cancelled_rounds=[wire.round_to_pb(each) for each in ended or ()]
        )

    async def ListTieringStatuses(  # type: ignore[override] # serialized already, which the interceptor allows
        self, request: pb.ListTieringStatusesRequest, context: object
    ) -> bytes:
        """Return the status of a table, or of all tables, as a serialized ListTieringStatusesResponse."""
        path = path_from_pb(request.table_path) if request.HasField("table_path") else None
        size, after = page_size_of(request), request.page_token
        present = caller()
        try:
            statuses = await self._threads.control(self._tiering.statuses, path)
        except FlussTieringError:
            if path is None:
                raise
            for error in (await self._missing([path])).values():
                raise error from None
            statuses = await self._threads.control(self._tiering.statuses, path)
        if present.tables is not None:
            statuses = [status for status in statuses if present.sees(status.path)]
        if request.failing:
            statuses = [status for status in statuses if status.failing]
        if after:
            statuses = statuses[bisect_right(statuses, after, key=lambda status: token_of_path(status.path)) :]
        if not size or len(statuses) <= size:
            return self._entries.of(statuses)
        page = statuses[:size]
        end = pb.ListTieringStatusesResponse(next_page_token=token_of_path(page[-1].path))
        return self._entries.of(page) + end.SerializeToString()

    async def ListTieringRounds(  # type: ignore[override] # likewise
        self, request: pb.ListTieringRoundsRequest, context: object
    ) -> bytes:
        """Return the last rounds of a table, a lease, or all tables, as a serialized ListTieringRoundsResponse."""
        path = path_from_pb(request.table_path) if request.HasField("table_path") else None
        lease_id = identifier(request, "lease_id", request.lease_id) if request.HasField("lease_id") else None
        if not 0 <= request.limit <= _MAX_ROUNDS:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"ListTieringRoundsRequest.limit is {request.limit}: expected 0 to {_MAX_ROUNDS}",
            )
        limit = request.limit or _DEFAULT_ROUNDS
        size, after = page_size_of(request), _table_id(request.page_token)
        collected = Collected("ListTieringRounds")
        count, sees = 0, caller().sees
        while True:
            page = await self._rounds(path, lease_id, limit, after, size - count if size else _ROUNDS_AT_ONCE)
            rounds = [each for each in page.rounds if sees(each.path)]
            for each in rounds:
                # Of one table all rounds have one path, so that they stay the newest first when they are sorted.
                order = (each.table_id,) if size else (token_of_path(each.path), each.table_id)
                message = pb.ListTieringRoundsResponse(rounds=[wire.round_to_pb(each)])
                collected.add(order, message.SerializeToString())
            after, count = page.next_after, count + len(rounds)
            if after is None or (size and count >= size):
                break
        if path is not None and not count and not request.page_token:
            await self._require(path)
        end = pb.ListTieringRoundsResponse(next_page_token="" if after is None else str(after))
        return collected.joined() + end.SerializeToString()

    async def GetLeaseOutcome(self, request: pb.GetLeaseOutcomeRequest, context: object) -> pb.GetLeaseOutcomeResponse:
        """Return the newest round of each table under a lease."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        token = optional_token(request)
        rounds: list[TieringRound] = []
        after: int | None = None
        while True:
            newest, page = await self._threads.control(self._outcomes, lease_id, after)
            rounds += page.rounds
            after = page.next_after
            if after is None:
                break
        rounds = sorted(rounds, key=lambda each: (each.path, each.table_id))
        return wire.outcome_to_pb(outcome_of(newest, rounds, token))

    async def _rounds(
        self, path: TablePath | None, lease_id: str | None, limit: int, after: int | None, wanted: int
    ) -> RoundsPage:
        """Return the rounds of as many tables as probably have the wanted number, within the limits of a turn."""
        tables = max(1, min(_TABLES_AT_ONCE, min(wanted, _ROUNDS_AT_ONCE) // limit))
        return await self._threads.control(self._tiering.rounds_page, path, lease_id, limit, after, tables)

    def _outcomes(self, lease_id: str, after: int | None) -> tuple[LeaseAttempt | None, RoundsPage]:
        return self._tiering.attempt(lease_id), self._tiering.rounds_page(None, lease_id, 1, after, _TABLES_AT_ONCE)

    async def WatchTieringStatuses(  # type: ignore[override] # likewise
        self, request: pb.WatchTieringStatusesRequest, context: object
    ) -> AsyncIterator[bytes]:
        """Yield the watched statuses, then each change, until the watcher or the server ends the stream.

        Each item is a serialized WatchTieringStatusesResponse.
        """
        paths = [path_from_pb(each) for each in bounded(request, "table_paths", request.table_paths)]
        for error in (await self._missing(paths)).values():
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

    async def ResumeTables(self, request: pb.ResumeTablesRequest, context: object) -> pb.ResumeTablesResponse:
        """Make failed tables Pending at once, and Scheduled ones if the request says so, each on its own."""
        paths = [path_from_pb(each) for each in bounded(request, "table_paths", request.table_paths)]
        missing = await self._missing(paths)
        present = [path for path in dict.fromkeys(paths) if path not in missing]
        resumed = await self._threads.control(self._tiering.resume, present, request.include_scheduled)
        answers: dict[TablePath, TieringStatus | FlussTieringError] = {
            **missing,
            **dict(zip(present, resumed, strict=True)),
        }
        return pb.ResumeTablesResponse(resumed_tables=[wire.resumed_to_pb(path, answers[path]) for path in paths])

    def _changes(self, statuses: Sequence[TieringStatus], removed: Sequence[TablePath]) -> bytes:
        # Both responses have the statuses in field 1, and serialized messages may be joined.
        end = pb.WatchTieringStatusesResponse(removed_tables=[path_to_pb(path) for path in removed])
        return self._entries.of(statuses) + end.SerializeToString()

    async def PrepareLakeTableSnapshot(
        self, request: pb.PrepareLakeTableSnapshotRequest, context: object
    ) -> pb.PrepareLakeTableSnapshotResponse:
        """Write the offsets files of future lake snapshots, each table on its own."""
        response = pb.PrepareLakeTableSnapshotResponse()
        tables = bounded(request, "bucket_offsets", request.bucket_offsets)
        offsets = sum(len(table.bucket_offsets) for table in tables)
        bounded_total(request, "bucket_offsets", offsets, MAX_BUCKET_ENTRIES)
        for table in tables:
            prepared = response.prepared_tables.add(table_id=table.table_id)
            try:
                prepared.lake_table_offsets_path = await self._prepare(
                    table, ignore_previous=request.ignore_previous_table_offsets
                )
            except FlussTieringError as error:
                prepared.error.CopyFrom(error_to_pb(error))
        return response

    async def CommitLakeTableSnapshot(
        self, request: pb.CommitLakeTableSnapshotRequest, context: object
    ) -> pb.CommitLakeTableSnapshotResponse:
        """Register lake snapshots, each table on its own."""
        named = bounded(request, "lake_table_snapshot_metadata", request.lake_table_snapshot_metadata)
        metadata = {each.table_id: each for each in named}
        response = pb.CommitLakeTableSnapshotResponse()
        tables = bounded(request, "tables_req", request.tables_req)
        bounded_total(request, "tables_req", sum(len(table.buckets_req) for table in tables), MAX_BUCKET_ENTRIES)
        for table in tables:
            committed = response.tables_resp.add(table_id=table.table_id)
            try:
                await self._commit(table, metadata.get(table.table_id))
            except FlussTieringError as error:
                committed.error.CopyFrom(error_to_pb(error))
        return response

    async def GetLakeSnapshot(self, request: pb.GetLakeSnapshotRequest, context: object) -> pb.GetLakeSnapshotResponse:
        """Return the newest lake snapshot that is known, or the one of an id. Both can be read from the lake."""
        path = path_from_pb(required(request, "table_path", request.table_path))
        table = await self._threads.storage(self._storage.table, path)
        if request.HasField("snapshot_id"):
            which = f"no lake snapshot {request.snapshot_id}"
            snapshot = await self._lake.snapshot(table, request.snapshot_id)
        else:
            which = "no lake snapshot yet"
            snapshot = await self._lake.newest(table)
        if snapshot is None:
            raise FlussTieringError(ErrorCode.LAKE_SNAPSHOT_NOT_EXIST, f"table {path} has {which}: tier it first")
        return await self._threads.storage(wire.lake_snapshot_to_pb, snapshot)

    async def _prepare(self, request: pb.PbTableOffsets, *, ignore_previous: bool) -> str:
        table = await self._threads.storage(self._storage.table_by_id, request.table_id)
        # In a thread, because a table may have a hundred thousand buckets.
        offsets = await self._threads.storage(wire.log_end_offsets_from_pb, table.table_id, request.bucket_offsets)
        return await self._lake.prepare(table, request.tiering_epoch, offsets, ignore_previous=ignore_previous)

    async def _commit(
        self, request: pb.PbLakeTableSnapshotInfo, metadata: pb.PbLakeTableSnapshotMetadata | None
    ) -> None:
        if metadata is None or metadata.snapshot_id != request.snapshot_id:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"lake_table_snapshot_metadata lacks snapshot {request.snapshot_id} of table {request.table_id}: "
                "expected it to name the offsets file",
            )
        table = await self._threads.storage(self._storage.table_by_id, request.table_id)
        offsets = await self._threads.storage(wire.log_end_offsets_from_pb, table.table_id, request.buckets_req)
        commit = CommitRegistration(
            table=table,
            tiering_epoch=request.tiering_epoch,
            snapshot_id=request.snapshot_id,
            log_end_offsets=offsets,
            commit_id=identifier(request, "commit_id", request.commit_id),
            offsets_path=metadata.tiered_bucket_offsets_file_path,
        )
        await self._lake.commit(commit)

    async def _missing(self, paths: Sequence[TablePath]) -> dict[TablePath, FlussTieringError]:
        """Return the tables that do not exist, each with its error.

        The storage may be out of reach. It is asked only about tables that are not tiered. A table that another client
        created a moment ago is tiered after this call.
        """
        untiered = await self._threads.control(self._tiering.untiered, paths)
        if not untiered:
            return {}
        found = await self._threads.storage(self._look_for, untiered)
        if any(isinstance(each, TableInfo) and _is_tiered(each) for each in found):
            await self._refresh()
        answers = zip(untiered, found, strict=True)
        return {path: answer for path, answer in answers if isinstance(answer, FlussTieringError)}

    async def _require(self, path: TablePath) -> None:
        """Raise TABLE_NOT_EXIST if the storage does not have the table."""
        await self._threads.storage(self._storage.table, path)

    def _look_for(self, paths: Sequence[TablePath]) -> list[TableInfo | FlussTieringError]:
        answers: list[TableInfo | FlussTieringError] = []
        for path in paths:
            try:
                answers.append(self._storage.table(path))
            except FlussTieringError as error:
                answers.append(error)
        return answers


def _entries(messages: Sequence[pb.PbHeartbeatReqForTable]) -> tuple[HeartbeatEntry, ...]:
    return tuple(wire.entry_from_pb(each) for each in messages)


def _check_format(request: pb.LakeTieringHeartbeatRequest | pb.ClaimTablesRequest) -> None:
    """Refuse a driver whose rounds would not understand those of this version, or the reverse."""
    if request.HasField("round_format") and request.round_format != ROUND_FORMAT:
        raise FlussTieringError(
            ErrorCode.UNSUPPORTED_ROUND_FORMAT,
            f"the driver makes rounds of the format {request.round_format}: expected {ROUND_FORMAT}, that of this "
            "server; install the same version of fluss-tiering where the server runs, in Airflow's environment and "
            "where Spark's drivers and workers run",
        )


def _driver(request: pb.LakeTieringHeartbeatRequest | pb.ClaimTablesRequest, driver: str) -> str:
    return identifier(request, "driver", driver) if driver else ""


def _table_id(token: str) -> int | None:
    if not token:
        return None
    if not token.isascii() or not token.isdecimal() or int(token) >= 1 << 63:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"ListTieringRoundsRequest.page_token is {token[:80]!r}: expected the next_page_token of an answer",
        )
    return int(token)


def _is_tiered(table: TableInfo) -> bool:
    return LakeOptions.of(table.descriptor.properties).enabled
