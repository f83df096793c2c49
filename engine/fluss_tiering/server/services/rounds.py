"""Calls of the LakeTiering service that begin, report and end rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import ROUND_FORMAT, Claim, HeartbeatAnswer, HeartbeatEntry, TieringRound
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat, check_heartbeat, heartbeat_turns, joined_answers
from fluss_tiering.server.core.tiering.manager import LakeTieringManager
from fluss_tiering.server.core.tiering.states import RoundOwner
from fluss_tiering.server.edge.callers.executor_tokens import ExecutorTokens
from fluss_tiering.server.edge.callers.identity import caller
from fluss_tiering.server.services.table_lookup import StorageLookup
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.checks import bounded, identifier, optional_token
from fluss_tiering.wire.tables import path_from_pb

_TABLES_AT_ONCE: Final = 50
"""About how many tables one turn of the control thread changes, so that other calls come in between."""


class RoundCalls:
    """Takes heartbeats, claims and cancellations.

    Args:
        threads: The threads of the server.
        tiering: The tables that are tiered.
        tables: Tells which tables do not exist.
        tokens: Makes the tokens of rounds; None if callers need none.
    """

    def __init__(
        self,
        threads: ServerThreads,
        tiering: LakeTieringManager,
        tables: StorageLookup,
        tokens: ExecutorTokens | None,
    ) -> None:
        self._tokens = tokens
        self._threads = threads
        self._tiering = tiering
        self._tables = tables

    async def heartbeat(self, request: pb.LakeTieringHeartbeatRequest) -> pb.LakeTieringHeartbeatResponse:
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
        answer = await self._in_turns(heartbeat)
        if reports:
            await self._threads.control(self._tiering.count_maintenance, reports)
        if answer.claim is not None:
            answer = replace(answer, claim=self._with_token(answer.claim))
        return wire.answer_to_pb(
            answer, tiering=heartbeat.tiering, finished=heartbeat.finished, failed=heartbeat.failed
        )

    async def _in_turns(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Apply a heartbeat, some reports in each turn of the control thread, and the request for a table at last.

        If a turn fails, the turns before it have been applied. The driver repeats its reports, which then change
        nothing.
        """
        check_heartbeat(heartbeat)
        turns = heartbeat_turns(heartbeat, _TABLES_AT_ONCE)
        if len(turns) > 1 and heartbeat.requester is not None:
            await self._threads.control(self._tiering.require_current, heartbeat.requester)
        # A driver that asks for any table gets one for which it has the role.
        among = caller().tables
        return joined_answers([await self._threads.control(self._tiering.heartbeat, each, among) for each in turns])

    async def claim(self, request: pb.ClaimTablesRequest) -> pb.ClaimTablesResponse:
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
        missing = await self._tables.missing(paths)
        present = [path for path in paths if path not in missing]
        claimed: list[Claim | FlussTieringError] = []
        for first in range(0, max(1, len(present)), _TABLES_AT_ONCE):
            some = present[first : first + _TABLES_AT_ONCE]
            claimed += await self._threads.control(self._tiering.claim, some, owner)
        with_tokens = [each if isinstance(each, FlussTieringError) else self._with_token(each) for each in claimed]
        answers = {**missing, **dict(zip(present, with_tokens, strict=True))}
        return pb.ClaimTablesResponse(claims=[wire.claim_to_pb(path, answers[path]) for path in paths])

    def _with_token(self, claim: Claim) -> Claim:
        if self._tokens is None:
            return claim
        return replace(claim, executor_token=self._tokens.for_round(claim.table_id, claim.tiering_epoch))

    async def cancel(self, request: pb.CancelTieringRequest) -> pb.CancelTieringResponse:
        """Fail the running rounds of an attempt."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        token = optional_token(request)
        ended: list[TieringRound] = []
        while True:
            some = await self._threads.control(self._tiering.cancel, lease_id, token, request.reason, _TABLES_AT_ONCE)
            ended += some or ()
            if not some or len(some) < _TABLES_AT_ONCE:
                break
        return pb.CancelTieringResponse(
            stale_attempt=some is None and not ended, cancelled_rounds=[wire.round_to_pb(each) for each in ended]
        )


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
