"""The LakeTiering service: heartbeats, claims, rounds. Beside it stand `statuses` and `lake_snapshots`."""

# ruff: noqa: N802 - the methods are named by the API

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import HeartbeatEntry
from fluss_tiering.server.rpc.statuses import StatusesServicer
from fluss_tiering.server.tiering.heartbeat import Heartbeat
from fluss_tiering.server.tiering.states import RoundOwner
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.checks import bounded, identifier, optional_token
from fluss_tiering.wire.heartbeats import answer_to_pb, entry_from_pb
from fluss_tiering.wire.tables import path_from_pb

_DEFAULT_ROUNDS: Final = 20
_MAX_ROUNDS: Final = 1000


class LakeTieringServicer(StatusesServicer):
    """Tiering over gRPC; what touches the managers in the thread of control."""

    async def LakeTieringHeartbeat(
        self, request: pb.LakeTieringHeartbeatRequest, context: object
    ) -> pb.LakeTieringHeartbeatResponse:
        """Reports of rounds, and a request for a pending table."""
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

    async def ClaimTables(self, request: pb.ClaimTablesRequest, context: object) -> pb.ClaimTablesResponse:
        """Claims tables by name, each on its own."""
        owner = RoundOwner(
            identifier(request, "lease_id", request.lease_id),
            optional_token(request),
            _driver(request, request.driver),
        )
        paths = [path_from_pb(each) for each in bounded(request, "table_paths", request.table_paths)]
        if len(set(paths)) < len(paths):
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, "ClaimTablesRequest names a table twice: claim it once")
        missing = await self._missing(paths)
        present = [path for path in paths if path not in missing]
        claimed = await self._threads.control(self._tiering.claim, present, owner)
        answers = {**missing, **dict(zip(present, claimed, strict=True))}
        return pb.ClaimTablesResponse(claims=[wire.claim_to_pb(path, answers[path]) for path in paths])

    async def CancelTiering(self, request: pb.CancelTieringRequest, context: object) -> pb.CancelTieringResponse:
        """Fails the running rounds of an attempt."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        reason = request.reason or "cancelled without a reason"
        cancelled = await self._threads.control(self._tiering.cancel, lease_id, optional_token(request), reason)
        return pb.CancelTieringResponse(
            stale_attempt=cancelled is None, cancelled_rounds=[wire.round_to_pb(each) for each in cancelled or ()]
        )

    async def ListTieringRounds(
        self, request: pb.ListTieringRoundsRequest, context: object
    ) -> pb.ListTieringRoundsResponse:
        """The last rounds of a table, of a lease, or of all (S23)."""
        path = path_from_pb(request.table_path) if request.HasField("table_path") else None
        lease_id = identifier(request, "lease_id", request.lease_id) if request.HasField("lease_id") else None
        if not 0 <= request.limit <= _MAX_ROUNDS:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"ListTieringRoundsRequest.limit is {request.limit}: expected 0 to {_MAX_ROUNDS}",
            )
        rounds = await self._threads.control(self._tiering.rounds, path, lease_id, request.limit or _DEFAULT_ROUNDS)
        if path is not None and not rounds:
            await self._threads.storage(self._storage.table, path)
        return pb.ListTieringRoundsResponse(rounds=[wire.round_to_pb(each) for each in rounds])

    async def GetLeaseOutcome(self, request: pb.GetLeaseOutcomeRequest, context: object) -> pb.GetLeaseOutcomeResponse:
        """The newest round of each table under a lease (S25)."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        outcome = await self._threads.control(self._tiering.lease_outcome, lease_id, optional_token(request))
        return wire.outcome_to_pb(outcome)


def _entries(messages: Sequence[pb.PbHeartbeatReqForTable]) -> tuple[HeartbeatEntry, ...]:
    return tuple(entry_from_pb(each) for each in messages)


def _driver(request: pb.LakeTieringHeartbeatRequest | pb.ClaimTablesRequest, driver: str) -> str:
    return identifier(request, "driver", driver) if driver else ""
