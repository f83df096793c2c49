"""Calls that list and read statuses, rounds, outcomes and leases.

Whatever lists is read in pages, each in a turn of the control thread, also if the client asks for everything at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import KvSnapshotLease, TieringRound, TieringStatus
from fluss_tiering.server.core.leases.attempts import outcome_of
from fluss_tiering.server.core.leases.manager import KvSnapshotLeaseManager
from fluss_tiering.server.core.store.records import LeaseAttempt, RoundsPage
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.core.tiering.manager import LakeTieringManager
from fluss_tiering.server.edge.callers.identity import caller
from fluss_tiering.server.services.pages import Collected, page_size_of, token_of_path
from fluss_tiering.server.services.table_access import TableAccess
from fluss_tiering.server.services.table_lookup import StorageLookup
from fluss_tiering.wire import leases as leases_wire
from fluss_tiering.wire import tiering as tiering_wire
from fluss_tiering.wire.checks import identifier, optional_token
from fluss_tiering.wire.tables import path_from_pb

_DEFAULT_ROUNDS: Final = 20
_MAX_ROUNDS: Final = 1000
_TABLES_AT_ONCE: Final = 50
_ROUNDS_AT_ONCE: Final = 400
_LEASES_AT_ONCE: Final = 500
_SNAPSHOTS_AT_ONCE: Final = 10_000
_KEPT_BESIDES: Final = 10_000
"""The number of unused entries that may be kept, in addition to as many as the last answer used."""
_MANY: Final = 1000
"""An answer with this many statuses is kept as a whole."""


class StatusEntries:
    """Serialized statuses, kept while the status of the table stays the same. It is used on the event loop only.

    Many clients ask for all statuses, and few statuses change between two answers.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[TieringStatus, bytes]] = {}
        self._last: tuple[Sequence[TieringStatus], bytes] = ((), b"")

    def of(self, statuses: Sequence[TieringStatus]) -> bytes:
        """Return a serialized message that has the statuses in field 1 and nothing else.

        Args:
            statuses: The statuses. The caller does not change the sequence later.
        """
        if statuses is self._last[0]:
            return self._last[1]
        entries = []
        for status in statuses:
            kept = self._kept.get(status.table_id)
            if kept is None or kept[0] is not status:
                kept = (status, tiering_wire.status_to_bytes(status))
                self._kept[status.table_id] = kept
            entries.append(kept[1])
        if len(self._kept) > 2 * len(entries) + _KEPT_BESIDES:
            self._kept = {status.table_id: self._kept[status.table_id] for status in statuses}
        answer = b"".join(entries)
        if len(entries) >= _MANY:
            self._last = (statuses, answer)
        return answer


class TieringReads:
    """Calls of the LakeTiering service that read statuses, rounds and outcomes.

    Args:
        threads: The threads of the server.
        tiering: The statuses and rounds.
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

    async def list_statuses(self, request: lake_tiering_pb2.ListTieringStatusesRequest) -> bytes:
        """Return the status of a table, or of all tables, as a serialized ListTieringStatusesResponse."""
        path = path_from_pb(request.table_path) if request.HasField("table_path") else None
        size, after = page_size_of(request), request.page_token
        present = caller()
        try:
            statuses = await self._threads.control(self._tiering.statuses, path)
        except FlussTieringError:
            if path is None:
                raise
            for error in (await self._tables.missing([path])).values():
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
        end = lake_tiering_pb2.ListTieringStatusesResponse(next_page_token=token_of_path(page[-1].path))
        return self._entries.of(page) + end.SerializeToString()

    async def list_rounds(self, request: lake_tiering_pb2.ListTieringRoundsRequest) -> bytes:
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
                message = lake_tiering_pb2.ListTieringRoundsResponse(rounds=[tiering_wire.round_to_pb(each)])
                collected.add(order, message.SerializeToString())
            after, count = page.next_after, count + len(rounds)
            if after is None or (size and count >= size):
                break
        if path is not None and not count and not request.page_token:
            await self._tables.require(path)
        end = lake_tiering_pb2.ListTieringRoundsResponse(next_page_token="" if after is None else str(after))
        return collected.joined() + end.SerializeToString()

    async def lease_outcome(
        self, request: lake_tiering_pb2.GetLeaseOutcomeRequest
    ) -> lake_tiering_pb2.GetLeaseOutcomeResponse:
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
        return tiering_wire.outcome_to_pb(outcome_of(newest, rounds, token))

    async def _rounds(
        self, path: TablePath | None, lease_id: str | None, limit: int, after: int | None, wanted: int
    ) -> RoundsPage:
        """Return the rounds of as many tables as probably have the wanted number, within the limits of a turn."""
        tables = max(1, min(_TABLES_AT_ONCE, min(wanted, _ROUNDS_AT_ONCE) // limit))
        return await self._threads.control(self._tiering.rounds_page, path, lease_id, limit, after, tables)

    def _outcomes(self, lease_id: str, after: int | None) -> tuple[LeaseAttempt | None, RoundsPage]:
        return self._tiering.attempt(lease_id), self._tiering.rounds_page(None, lease_id, 1, after, _TABLES_AT_ONCE)


class LeaseReads:
    """Calls of the KvSnapshotLeases service that read leases.

    Args:
        threads: The threads of the server.
        leases: The leases.
        access: Knows which leases a caller may see.
    """

    def __init__(self, threads: ServerThreads, leases: KvSnapshotLeaseManager, access: TableAccess) -> None:
        self._threads = threads
        self._leases = leases
        self._access = access

    async def list_leases(self, request: kv_snapshot_leases_pb2.ListKvSnapshotLeasesRequest) -> bytes:
        """Return the lease of an id, or all leases, as a serialized ListKvSnapshotLeasesResponse."""
        size, after = page_size_of(request), request.page_token
        if request.lease_id:
            found = await self._threads.control(self._leases.leases, request.lease_id)
            return await self._threads.storage(_leases_to_bytes, found)
        collected = Collected("ListKvSnapshotLeases")
        count = 0
        while True:
            at_once = min(_LEASES_AT_ONCE, size - count if size else _LEASES_AT_ONCE)
            page = await self._threads.control(self._leases.page, after, at_once, _SNAPSHOTS_AT_ONCE)
            if not page:
                return collected.joined()
            leases = await self._access.visible_leases(page)
            # In a thread, because a lease may pin a hundred thousand snapshots.
            collected.add((page[0].lease_id,), await self._threads.storage(_leases_to_bytes, leases))
            after, count = page[-1].lease_id, count + len(leases)
            if size and count == size:
                end = kv_snapshot_leases_pb2.ListKvSnapshotLeasesResponse(next_page_token=after)
                return collected.joined() + end.SerializeToString()


def _leases_to_bytes(leases: Sequence[KvSnapshotLease]) -> bytes:
    messages = [leases_wire.lease_to_pb(lease) for lease in leases]
    return kv_snapshot_leases_pb2.ListKvSnapshotLeasesResponse(leases=messages).SerializeToString()


def _table_id(token: str) -> int | None:
    if not token:
        return None
    if not token.isascii() or not token.isdecimal() or int(token) >= 1 << 63:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"ListTieringRoundsRequest.page_token is {token[:80]!r}: expected the next_page_token of an answer",
        )
    return int(token)
