"""Calls of the LakeTiering service that begin, report and end rounds."""

from __future__ import annotations

from collections.abc import Sequence

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import HeartbeatEntry
from fluss_tiering.server.rpc.reads import TableLookup
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.server.tiering.heartbeat import Heartbeat
from fluss_tiering.server.tiering.manager import LakeTieringManager
from fluss_tiering.server.tiering.states import RoundOwner
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.checks import bounded, identifier, optional_token
from fluss_tiering.wire.heartbeats import answer_to_pb, entry_from_pb
from fluss_tiering.wire.tables import path_from_pb


class RoundCalls:
    """Takes heartbeats, claims and cancellations.

    Args:
        threads: The threads of the server.
        tiering: The tables that are tiered.
        tables: Tells which tables do not exist.
    """

    def __init__(self, threads: ServerThreads, tiering: LakeTieringManager, tables: TableLookup) -> None:
        self._threads = threads
        self._tiering = tiering
        self._tables = tables

    async def heartbeat(self, request: pb.LakeTieringHeartbeatRequest) -> pb.LakeTieringHeartbeatResponse:
        """Take the reports of rounds, and hand out a pending table if the driver asks for one."""
        requester = None
        if request.request_table:
            lease_id = identifier(request, "lease_id", request.lease_id) if request.HasField("lease_id") else ""
            requester = RoundOwner(lease_id, optional_token(request), _driver(request, request.driver))
        heartbeat = Heartbeat(
            tiering=_entries(bounded(request, "tiering_tables", request.tiering_tables)),
            finished=_entries(bounded(request, "finished_tables", request.finished_tables)),
            failed=_entries(bounded(request, "failed_tables", request.failed_tables)),
            force_finished=frozenset(request.force_finished_tables),
            requester=requester,
        )
        answer = await self._threads.control(self._tiering.heartbeat, heartbeat)
        return answer_to_pb(answer, tiering=heartbeat.tiering, finished=heartbeat.finished, failed=heartbeat.failed)

    async def claim(self, request: pb.ClaimTablesRequest) -> pb.ClaimTablesResponse:
        """Claim tables by name, each on its own."""
        owner = RoundOwner(
            identifier(request, "lease_id", request.lease_id),
            optional_token(request),
            _driver(request, request.driver),
        )
        paths = [path_from_pb(each) for each in bounded(request, "table_paths", request.table_paths)]
        if len(set(paths)) < len(paths):
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, "ClaimTablesRequest names a table twice: claim it once")
        missing = await self._tables.missing(paths)
        present = [path for path in paths if path not in missing]
        claimed = await self._threads.control(self._tiering.claim, present, owner)
        answers = {**missing, **dict(zip(present, claimed, strict=True))}
        return pb.ClaimTablesResponse(claims=[wire.claim_to_pb(path, answers[path]) for path in paths])

    async def cancel(self, request: pb.CancelTieringRequest) -> pb.CancelTieringResponse:
        """Fail the running rounds of an attempt."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        reason = request.reason or "cancelled without a reason"
        cancelled = await self._threads.control(self._tiering.cancel, lease_id, optional_token(request), reason)
        return pb.CancelTieringResponse(
            stale_attempt=cancelled is None, cancelled_rounds=[wire.round_to_pb(each) for each in cancelled or ()]
        )


def _entries(messages: Sequence[pb.PbHeartbeatReqForTable]) -> tuple[HeartbeatEntry, ...]:
    return tuple(entry_from_pb(each) for each in messages)


def _driver(request: pb.LakeTieringHeartbeatRequest | pb.ClaimTablesRequest, driver: str) -> str:
    return identifier(request, "driver", driver) if driver else ""
