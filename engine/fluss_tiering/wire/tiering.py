"""Tiering statuses, rounds, claims and heartbeats <-> messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import (
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    LeaseOutcome,
    StatusChanges,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
)
from fluss_tiering.wire.checks import not_negative
from fluss_tiering.wire.errors import error_from_pb, error_to_pb
from fluss_tiering.wire.tables import path_from_pb, path_to_pb

_STATES: Final = {state.value: state for state in TieringState}


def stats_to_pb(stats: TieringStats) -> pb.PbTieringStats:
    """What a round wrote."""
    return pb.PbTieringStats(
        rows=stats.rows,
        bytes=stats.bytes,
        files=stats.files,
        lake_snapshot_id=stats.lake_snapshot_id,
        lake_file_size=stats.lake_file_size,
        lake_record_count=stats.lake_record_count,
    )


def stats_from_pb(message: pb.PbTieringStats) -> TieringStats:
    """What a round wrote; INVALID_REQUEST for negative counts."""
    return TieringStats(
        rows=not_negative(message, "rows", message.rows),
        bytes=not_negative(message, "bytes", message.bytes),
        files=not_negative(message, "files", message.files),
        lake_snapshot_id=message.lake_snapshot_id if message.HasField("lake_snapshot_id") else None,
        lake_file_size=not_negative(message, "lake_file_size", message.lake_file_size)
        if message.HasField("lake_file_size")
        else None,
        lake_record_count=not_negative(message, "lake_record_count", message.lake_record_count)
        if message.HasField("lake_record_count")
        else None,
    )


def entry_to_pb(entry: HeartbeatEntry) -> pb.PbHeartbeatReqForTable:
    """What a heartbeat says of one table."""
    return pb.PbHeartbeatReqForTable(
        table_id=entry.table_id,
        coordinator_epoch=entry.coordinator_epoch,
        tiering_epoch=entry.tiering_epoch,
        error_message=entry.error_message,
        stats=None if entry.stats is None else stats_to_pb(entry.stats),
    )


def entry_from_pb(message: pb.PbHeartbeatReqForTable) -> HeartbeatEntry:
    """What a heartbeat says of one table; a sender may leave out error_message (S15) and stats."""
    return HeartbeatEntry(
        table_id=message.table_id,
        tiering_epoch=message.tiering_epoch,
        error_message=message.error_message if message.HasField("error_message") else None,
        stats=stats_from_pb(message.stats) if message.HasField("stats") else None,
        coordinator_epoch=message.coordinator_epoch,
    )


def answer_to_pb(
    answer: HeartbeatAnswer,
    *,
    tiering: Iterable[HeartbeatEntry],
    finished: Iterable[HeartbeatEntry],
    failed: Iterable[HeartbeatEntry],
) -> pb.LakeTieringHeartbeatResponse:
    """The answer to the heartbeat that said this: one part for each table, with an error where it was refused."""
    response = pb.LakeTieringHeartbeatResponse(
        coordinator_epoch=answer.coordinator_epoch,
        tiering_table_resp=_answers_to_pb(tiering, answer.tiering_errors),
        finished_table_resp=_answers_to_pb(finished, answer.finished_errors),
        failed_table_resp=_answers_to_pb(failed, answer.failed_errors),
    )
    if answer.claim is not None:
        response.tiering_table.CopyFrom(
            pb.PbLakeTieringTable(
                table_id=answer.claim.table_id,
                table_path=path_to_pb(answer.claim.path),
                tiering_epoch=answer.claim.tiering_epoch,
            )
        )
    return response


def answer_from_pb(message: pb.LakeTieringHeartbeatResponse) -> HeartbeatAnswer:
    """The answer to a heartbeat."""
    claim = None
    if message.HasField("tiering_table"):
        table = message.tiering_table
        claim = Claim(table.table_id, path_from_pb(table.table_path), table.tiering_epoch)
    return HeartbeatAnswer(
        coordinator_epoch=message.coordinator_epoch,
        claim=claim,
        tiering_errors=_errors_from_pb(message.tiering_table_resp),
        finished_errors=_errors_from_pb(message.finished_table_resp),
        failed_errors=_errors_from_pb(message.failed_table_resp),
    )


def claim_to_pb(path: TablePath, claim: Claim | FlussTieringError) -> pb.PbClaim:
    """The claim of one table, or why it was refused."""
    if isinstance(claim, FlussTieringError):
        return pb.PbClaim(table_path=path_to_pb(path), error=error_to_pb(claim))
    return pb.PbClaim(table_path=path_to_pb(path), table_id=claim.table_id, tiering_epoch=claim.tiering_epoch)


def claim_from_pb(message: pb.PbClaim) -> Claim | FlussTieringError:
    """The claim of one table, or why it was refused."""
    if message.HasField("error"):
        return error_from_pb(message.error)
    return Claim(message.table_id, path_from_pb(message.table_path), message.tiering_epoch)


def status_to_pb(status: TieringStatus) -> pb.PbTableTieringStatus:
    """A table's tiering as it stands."""
    return pb.PbTableTieringStatus(
        table_path=path_to_pb(status.path),
        status=status.state.value,
        tiering_epoch=status.tiering_epoch,
        last_tiered_time=status.last_tiered_time,
        last_error=status.last_error,
        last_error_time=status.last_error_time,
        table_id=status.table_id,
        consecutive_failures=status.consecutive_failures,
        next_retry_time=status.next_retry_time,
        status_since=status.state_since,
        parked=status.parked,
    )


def status_to_bytes(status: TieringStatus) -> bytes:
    """A table's tiering as an entry of a serialised `tiering_statuses`.

    Answers with many statuses are these, joined: a serialised message is the concatenation of its fields' entries, and
    to make ten thousand messages for each answer would take long.
    """
    return pb.ListTieringStatusesResponse(tiering_statuses=[status_to_pb(status)]).SerializeToString()


def status_from_pb(message: pb.PbTableTieringStatus) -> TieringStatus:
    """A table's tiering as it stands."""
    return TieringStatus(
        table_id=message.table_id,
        path=path_from_pb(message.table_path),
        state=_state_from_pb(message.status),
        state_since=message.status_since,
        tiering_epoch=message.tiering_epoch,
        last_tiered_time=message.last_tiered_time if message.HasField("last_tiered_time") else None,
        last_error=message.last_error if message.HasField("last_error") else None,
        last_error_time=message.last_error_time if message.HasField("last_error_time") else None,
        consecutive_failures=message.consecutive_failures,
        next_retry_time=message.next_retry_time if message.HasField("next_retry_time") else None,
    )


def changes_from_pb(message: pb.WatchTieringStatusesResponse) -> StatusChanges:
    """What a watcher of statuses is told."""
    return StatusChanges(
        statuses=tuple(status_from_pb(status) for status in message.tiering_statuses),
        removed=tuple(path_from_pb(path) for path in message.removed_tables),
    )


def resumed_to_pb(path: TablePath, resumed: TieringStatus | FlussTieringError) -> pb.PbResumedTable:
    """The status of a table after it was resumed, or why it was not."""
    if isinstance(resumed, FlussTieringError):
        return pb.PbResumedTable(table_path=path_to_pb(path), error=error_to_pb(resumed))
    return pb.PbResumedTable(table_path=path_to_pb(path), tiering_status=status_to_pb(resumed))


def resumed_from_pb(message: pb.PbResumedTable) -> TieringStatus | FlussTieringError:
    """The status of a table after it was resumed, or why it was not."""
    return error_from_pb(message.error) if message.HasField("error") else status_from_pb(message.tiering_status)


def round_to_pb(tiering_round: TieringRound) -> pb.PbTieringRound:
    """A round, running or ended."""
    return pb.PbTieringRound(
        table_id=tiering_round.table_id,
        table_path=path_to_pb(tiering_round.path),
        tiering_epoch=tiering_round.tiering_epoch,
        status=tiering_round.state.value,
        lease_id=tiering_round.lease_id,
        attempt_token=tiering_round.attempt_token,
        driver=tiering_round.driver,
        start_time=tiering_round.start_time,
        end_time=tiering_round.end_time,
        error=tiering_round.error,
        stats=None if tiering_round.stats is None else stats_to_pb(tiering_round.stats),
        force_finished=tiering_round.force_finished,
    )


def round_from_pb(message: pb.PbTieringRound) -> TieringRound:
    """A round, running or ended."""
    return TieringRound(
        table_id=message.table_id,
        path=path_from_pb(message.table_path),
        tiering_epoch=message.tiering_epoch,
        state=_state_from_pb(message.status),
        lease_id=message.lease_id,
        attempt_token=message.attempt_token if message.HasField("attempt_token") else None,
        driver=message.driver,
        start_time=message.start_time,
        end_time=message.end_time if message.HasField("end_time") else None,
        error=message.error if message.HasField("error") else None,
        stats=stats_from_pb(message.stats) if message.HasField("stats") else None,
        force_finished=message.force_finished,
    )


def outcome_to_pb(outcome: LeaseOutcome) -> pb.GetLeaseOutcomeResponse:
    """What waiters on a lease see."""
    return pb.GetLeaseOutcomeResponse(
        rounds=[round_to_pb(each) for each in outcome.rounds],
        cancelled_reason=outcome.cancelled_reason,
        newest_attempt_token=outcome.newest_attempt_token,
    )


def outcome_from_pb(message: pb.GetLeaseOutcomeResponse) -> LeaseOutcome:
    """What waiters on a lease see."""
    return LeaseOutcome(
        rounds=tuple(round_from_pb(each) for each in message.rounds),
        cancelled_reason=message.cancelled_reason if message.HasField("cancelled_reason") else None,
        newest_attempt_token=message.newest_attempt_token if message.HasField("newest_attempt_token") else None,
    )


def _state_from_pb(name: str) -> TieringState:
    state = _STATES.get(name)
    if state is None:
        raise FlussTieringError(
            ErrorCode.UNKNOWN, f"tiering status {name!r} is not known here: expected one of {', '.join(TieringState)}"
        )
    return state


def _answers_to_pb(
    entries: Iterable[HeartbeatEntry], errors: Mapping[int, FlussTieringError]
) -> list[pb.PbHeartbeatRespForTable]:
    return [
        pb.PbHeartbeatRespForTable(
            table_id=entry.table_id, error=error_to_pb(errors[entry.table_id]) if entry.table_id in errors else None
        )
        for entry in entries
    ]


def _errors_from_pb(answers: Iterable[pb.PbHeartbeatRespForTable]) -> dict[int, FlussTieringError]:
    return {answer.table_id: error_from_pb(answer.error) for answer in answers if answer.HasField("error")}
