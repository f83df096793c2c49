"""The calls of the LakeTiering service that change or read the tiering state of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.client.calls.arguments import checked_arguments, paths_to_pb
from fluss_tiering.client.calls.call import PAGE_SIZE, UnaryCall
from fluss_tiering.model.error_text import clean_error
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import (
    MAX_SENT_ERROR_CHARS,
    ROUND_FORMAT,
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    LeaseOutcome,
    RoundOrigin,
    TieringRound,
    TieringStatus,
)
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.heartbeats import answer_from_pb, entry_to_pb, maintenance_to_pb
from fluss_tiering.wire.tables import path_to_pb


@checked_arguments
def heartbeat(
    *,
    tiering: Iterable[HeartbeatEntry],
    finished: Iterable[HeartbeatEntry],
    failed: Iterable[HeartbeatEntry],
    request_table: bool,
    force_finished: Iterable[int],
    lease_id: str | None,
    attempt_token: int | None,
    driver: str | None,
    maintained: Iterable[MaintenanceReport],
) -> UnaryCall[pb.LakeTieringHeartbeatRequest, pb.LakeTieringHeartbeatResponse, HeartbeatAnswer]:
    """Report on the rounds of a driver. Secrets in error messages are masked, and long messages are cut."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.LakeTieringHeartbeat,
        pb.LakeTieringHeartbeatRequest(
            tiering_tables=[entry_to_pb(entry) for entry in tiering],
            finished_tables=[entry_to_pb(entry) for entry in finished],
            failed_tables=[entry_to_pb(_cleaned(entry)) for entry in failed],
            request_table=request_table,
            force_finished_tables=force_finished,
            lease_id=lease_id,
            attempt_token=attempt_token,
            driver=driver,
            round_format=ROUND_FORMAT if request_table else None,
            maintained_tables=[maintenance_to_pb(report) for report in maintained],
        ),
        answer_from_pb,
    )


@checked_arguments
def claim_tables(
    paths: Sequence[TablePath], lease_id: str, attempt_token: int | None, driver: str, origin: RoundOrigin | None
) -> UnaryCall[pb.ClaimTablesRequest, pb.ClaimTablesResponse, list[Claim | FlussTieringError]]:
    """Claim tables by name; each has an answer of its own, in the order of the request."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.ClaimTables,
        pb.ClaimTablesRequest(
            table_paths=paths_to_pb(paths),
            lease_id=lease_id,
            attempt_token=attempt_token,
            driver=driver,
            round_format=ROUND_FORMAT,
            origin=None if origin is None else wire.origin_to_pb(origin),
        ),
        lambda response: [wire.claim_from_pb(claim) for claim in response.claims],
    )


@checked_arguments
def cancel_tiering(
    lease_id: str, attempt_token: int | None, reason: str
) -> UnaryCall[pb.CancelTieringRequest, pb.CancelTieringResponse, bool]:
    """Fail the running rounds of an attempt; the answer is False if the attempt is stale."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.CancelTiering,
        pb.CancelTieringRequest(
            lease_id=lease_id, attempt_token=attempt_token, reason=clean_error(reason, MAX_SENT_ERROR_CHARS)
        ),
        lambda response: not response.stale_attempt,
    )


@checked_arguments
def list_tiering_statuses(
    path: TablePath | None, failing: bool = False
) -> UnaryCall[pb.ListTieringStatusesRequest, pb.ListTieringStatusesResponse, list[TieringStatus]]:
    """Read the status of a table, or of all tables, or only of those that fail."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.ListTieringStatuses,
        pb.ListTieringStatusesRequest(table_path=None if path is None else path_to_pb(path), failing=failing),
        # A server of an older version lists the others, too.
        lambda response: [
            status for status in map(wire.status_from_pb, response.tiering_statuses) if status.failing or not failing
        ],
    )


@checked_arguments
def resume_tables(
    paths: Sequence[TablePath], include_scheduled: bool
) -> UnaryCall[pb.ResumeTablesRequest, pb.ResumeTablesResponse, list[TieringStatus | FlussTieringError]]:
    """Make failed tables pending, and scheduled ones if wanted; each has an answer, in the order of the request."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.ResumeTables,
        pb.ResumeTablesRequest(table_paths=paths_to_pb(paths), include_scheduled=include_scheduled),
        lambda response: [wire.resumed_from_pb(each) for each in response.resumed_tables],
    )


@checked_arguments
def watch_request(paths: Iterable[TablePath]) -> pb.WatchTieringStatusesRequest:
    """Return the request to watch these tables, or all tables if there are none."""
    return pb.WatchTieringStatusesRequest(table_paths=paths_to_pb(paths))


@checked_arguments
def list_tiering_rounds(
    path: TablePath | None, lease_id: str | None, limit: int
) -> UnaryCall[pb.ListTieringRoundsRequest, pb.ListTieringRoundsResponse, list[TieringRound]]:
    """Read the last rounds of a table, of a lease or of all tables, newest first."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.ListTieringRounds,
        pb.ListTieringRoundsRequest(
            table_path=None if path is None else path_to_pb(path),
            lease_id=lease_id,
            limit=limit,
            page_size=PAGE_SIZE,
        ),
        lambda response: [wire.round_from_pb(each) for each in response.rounds],
    )


@checked_arguments
def lease_outcome(
    lease_id: str, attempt_token: int | None
) -> UnaryCall[pb.GetLeaseOutcomeRequest, pb.GetLeaseOutcomeResponse, LeaseOutcome]:
    """Read the newest round of each table under a lease."""
    return UnaryCall(
        lambda stubs: stubs.lake_tiering.GetLeaseOutcome,
        pb.GetLeaseOutcomeRequest(lease_id=lease_id, attempt_token=attempt_token),
        wire.outcome_from_pb,
    )


def _cleaned(entry: HeartbeatEntry) -> HeartbeatEntry:
    if entry.error_message is None:
        return entry
    return replace(entry, error_message=clean_error(entry.error_message, MAX_SENT_ERROR_CHARS))
