"""Conversions between tiering statuses, rounds and claims and their messages."""

from __future__ import annotations

from typing import Final

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import (
    Claim,
    LeaseOutcome,
    RoundOrigin,
    StatusChanges,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
    is_web_address,
)
from fluss_tiering.wire.checks import identifier, not_negative
from fluss_tiering.wire.errors import error_from_pb, error_to_pb
from fluss_tiering.wire.tables import path_from_pb, path_to_pb

_STATES: Final = {state.value: state for state in TieringState}


def stats_to_pb(stats: TieringStats) -> pb.PbTieringStats:
    """Return the message of a round's stats."""
    return pb.PbTieringStats(
        rows=stats.rows,
        bytes=stats.bytes,
        files=stats.files,
        lake_snapshot_id=stats.lake_snapshot_id,
        lake_file_size=stats.lake_file_size,
        lake_record_count=stats.lake_record_count,
    )


def stats_from_pb(message: pb.PbTieringStats) -> TieringStats:
    """Return the stats of a message.

    Raises:
        FlussTieringError: INVALID_REQUEST if a number is negative.
    """
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


def claim_to_pb(path: TablePath, claim: Claim | FlussTieringError) -> pb.PbClaim:
    """Return the message of a table's claim, or of the error that says why it was refused."""
    if isinstance(claim, FlussTieringError):
        return pb.PbClaim(table_path=path_to_pb(path), error=error_to_pb(claim))
    return pb.PbClaim(
        table_path=path_to_pb(path),
        table_id=claim.table_id,
        tiering_epoch=claim.tiering_epoch,
        coordinator_epoch=claim.coordinator_epoch,
        executor_token=claim.executor_token,
    )


def claim_from_pb(message: pb.PbClaim) -> Claim | FlussTieringError:
    """Return a table's claim, or the error that says why it was refused."""
    if message.HasField("error"):
        return error_from_pb(message.error)
    path = path_from_pb(message.table_path)
    return Claim(message.table_id, path, message.tiering_epoch, message.coordinator_epoch, message.executor_token)


def status_to_pb(status: TieringStatus) -> pb.PbTableTieringStatus:
    """Return the message of a table's status."""
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
        records_waiting=status.records_waiting,
        waiting_since=status.waiting_since,
        next_round_time=status.next_round_time,
        freshness_ms=status.freshness_ms,
        last_maintained_time=status.last_maintained_time,
        maintenance_saved_files=status.maintenance_saved_files,
        maintenance_rewritten_bytes=status.maintenance_rewritten_bytes,
        maintenance_expired_snapshots=status.maintenance_expired_snapshots,
        maintenance_deleted_files=status.maintenance_deleted_files,
        switched_on_time=status.switched_on_time,
        failing_since=status.failing_since,
        dropped_untiered_records=status.dropped_untiered_records,
        dropped_untiered_time=status.dropped_untiered_time,
    )


def status_to_bytes(status: TieringStatus) -> bytes:
    """Return a table's status as a serialised entry of the field `tiering_statuses`.

    An answer with many statuses joins these entries, because a serialised message is the concatenation of its entries.
    To build ten thousand messages for each answer would take too long.
    """
    return pb.ListTieringStatusesResponse(tiering_statuses=[status_to_pb(status)]).SerializeToString()


def status_from_pb(message: pb.PbTableTieringStatus) -> TieringStatus:
    """Return the table's status of a message."""
    # Without the names of the fields this takes a quarter less, which counts in an answer with ten thousand statuses.
    return TieringStatus(
        message.table_id,
        path_from_pb(message.table_path),
        _state_from_pb(message.status),
        message.status_since,
        message.tiering_epoch,
        message.last_tiered_time if message.HasField("last_tiered_time") else None,
        message.last_error if message.HasField("last_error") else None,
        message.last_error_time if message.HasField("last_error_time") else None,
        message.consecutive_failures,
        message.next_retry_time if message.HasField("next_retry_time") else None,
        message.records_waiting if message.HasField("records_waiting") else None,
        message.waiting_since if message.HasField("waiting_since") else None,
        message.next_round_time if message.HasField("next_round_time") else None,
        message.freshness_ms if message.HasField("freshness_ms") else None,
        message.last_maintained_time if message.HasField("last_maintained_time") else None,
        message.maintenance_saved_files if message.HasField("maintenance_saved_files") else None,
        message.maintenance_rewritten_bytes if message.HasField("maintenance_rewritten_bytes") else None,
        message.maintenance_expired_snapshots if message.HasField("maintenance_expired_snapshots") else None,
        message.maintenance_deleted_files if message.HasField("maintenance_deleted_files") else None,
        message.switched_on_time if message.HasField("switched_on_time") else None,
        message.failing_since if message.HasField("failing_since") else None,
        message.dropped_untiered_records,
        message.dropped_untiered_time if message.HasField("dropped_untiered_time") else None,
    )


def changes_from_pb(message: pb.WatchTieringStatusesResponse) -> StatusChanges:
    """Return the news for a watcher of statuses."""
    return StatusChanges(
        statuses=tuple(status_from_pb(status) for status in message.tiering_statuses),
        removed=tuple(path_from_pb(path) for path in message.removed_tables),
    )


def resumed_to_pb(path: TablePath, resumed: TieringStatus | FlussTieringError) -> pb.PbResumedTable:
    """Return the message of a resumed table's status, or of the error that says why it was not resumed."""
    if isinstance(resumed, FlussTieringError):
        return pb.PbResumedTable(table_path=path_to_pb(path), error=error_to_pb(resumed))
    return pb.PbResumedTable(table_path=path_to_pb(path), tiering_status=status_to_pb(resumed))


def resumed_from_pb(message: pb.PbResumedTable) -> TieringStatus | FlussTieringError:
    """Return a resumed table's status, or the error that says why it was not resumed."""
    return error_from_pb(message.error) if message.HasField("error") else status_from_pb(message.tiering_status)


def round_to_pb(tiering_round: TieringRound) -> pb.PbTieringRound:
    """Return the message of a round."""
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
        interrupted=tiering_round.interrupted,
        origin=None if tiering_round.origin is None else origin_to_pb(tiering_round.origin),
        waiting_since=tiering_round.waiting_since,
    )


def round_from_pb(message: pb.PbTieringRound) -> TieringRound:
    """Return the round of a message."""
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
        interrupted=message.interrupted,
        origin=origin_from_pb(message.origin) if message.HasField("origin") else None,
        waiting_since=message.waiting_since if message.HasField("waiting_since") else None,
    )


def origin_to_pb(origin: RoundOrigin) -> pb.PbRoundOrigin:
    """Return the message of where a round was started."""
    return pb.PbRoundOrigin(
        dag_id=origin.dag_id,
        run_id=origin.run_id,
        task_id=origin.task_id,
        map_index=origin.map_index,
        try_number=origin.try_number,
        spark_application_id=origin.spark_application_id,
        spark_ui_url=origin.spark_ui_url,
    )


def checked_origin(message: pb.PbRoundOrigin) -> RoundOrigin:
    """Return where a round was started, as a driver told it.

    Raises:
        FlussTieringError: INVALID_REQUEST if a text is too long or not printable, a number is negative, or the address
            of Spark's user interface is none of the web, or has a login.
    """
    for field, value in (
        ("dag_id", message.dag_id),
        ("run_id", message.run_id),
        ("task_id", message.task_id),
        ("spark_application_id", message.spark_application_id),
        ("spark_ui_url", message.spark_ui_url),
    ):
        if value:
            identifier(message, field, value)
    not_negative(message, "map_index", message.map_index)
    not_negative(message, "try_number", message.try_number)
    if message.spark_ui_url and not is_web_address(message.spark_ui_url):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"PbRoundOrigin.spark_ui_url is {mask_secrets(message.spark_ui_url)[:80]!r}: expected an address with "
            "http:// or https://, and without a user name and a password",
        )
    return origin_from_pb(message)


def origin_from_pb(message: pb.PbRoundOrigin) -> RoundOrigin:
    """Return where a round was started."""
    return RoundOrigin(
        dag_id=message.dag_id,
        run_id=message.run_id,
        task_id=message.task_id,
        map_index=message.map_index if message.HasField("map_index") else None,
        try_number=message.try_number,
        spark_application_id=message.spark_application_id,
        spark_ui_url=message.spark_ui_url,
    )


def outcome_to_pb(outcome: LeaseOutcome) -> pb.GetLeaseOutcomeResponse:
    """Return the message of a lease's outcome."""
    return pb.GetLeaseOutcomeResponse(
        rounds=[round_to_pb(each) for each in outcome.rounds],
        cancelled_reason=outcome.cancelled_reason,
        newest_attempt_token=outcome.newest_attempt_token,
    )


def outcome_from_pb(message: pb.GetLeaseOutcomeResponse) -> LeaseOutcome:
    """Return the lease's outcome of a message."""
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
