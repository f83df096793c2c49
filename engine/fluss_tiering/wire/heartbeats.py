"""Conversions between heartbeats and their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, HeartbeatEntry
from fluss_tiering.wire.checks import not_negative
from fluss_tiering.wire.errors import error_from_pb, error_to_pb
from fluss_tiering.wire.tables import path_from_pb, path_to_pb
from fluss_tiering.wire.tiering import stats_from_pb, stats_to_pb


def entry_to_pb(entry: HeartbeatEntry) -> pb.PbHeartbeatReqForTable:
    """Return the message of a report on one table."""
    return pb.PbHeartbeatReqForTable(
        table_id=entry.table_id,
        coordinator_epoch=entry.coordinator_epoch,
        tiering_epoch=entry.tiering_epoch,
        error_message=entry.error_message,
        stats=None if entry.stats is None else stats_to_pb(entry.stats),
        interrupted=entry.interrupted,
        lake_rewritten=entry.lake_rewritten,
    )


def entry_from_pb(message: pb.PbHeartbeatReqForTable) -> HeartbeatEntry:
    """Return the report of a message on one table. The sender may leave out `error_message` and `stats`."""
    return HeartbeatEntry(
        table_id=message.table_id,
        tiering_epoch=message.tiering_epoch,
        error_message=message.error_message if message.HasField("error_message") else None,
        stats=stats_from_pb(message.stats) if message.HasField("stats") else None,
        coordinator_epoch=message.coordinator_epoch,
        interrupted=message.interrupted,
        lake_rewritten=message.lake_rewritten,
    )


def maintenance_to_pb(report: MaintenanceReport) -> pb.PbLakeMaintenance:
    """Return the message of a report on maintenance."""
    return pb.PbLakeMaintenance(
        table_id=report.table_id,
        saved_files=report.saved_files,
        rewritten_bytes=report.rewritten_bytes,
        expired_snapshots=report.expired_snapshots,
        deleted_files=report.deleted_files,
    )


def maintenance_from_pb(message: pb.PbLakeMaintenance) -> MaintenanceReport:
    """Return the report of a message on maintenance.

    Raises:
        FlussTieringError: INVALID_REQUEST if a number is below 0. Counters only grow.
    """
    return MaintenanceReport(
        message.table_id,
        saved_files=not_negative(message, "saved_files", message.saved_files),
        rewritten_bytes=not_negative(message, "rewritten_bytes", message.rewritten_bytes),
        expired_snapshots=not_negative(message, "expired_snapshots", message.expired_snapshots),
        deleted_files=not_negative(message, "deleted_files", message.deleted_files),
    )


def answer_to_pb(
    answer: HeartbeatAnswer,
    *,
    tiering: Iterable[HeartbeatEntry],
    finished: Iterable[HeartbeatEntry],
    failed: Iterable[HeartbeatEntry],
) -> pb.LakeTieringHeartbeatResponse:
    """Return the message of the answer to a heartbeat with these reports.

    It has one part for each report, with an error if the report was refused.
    """
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
                executor_token=answer.claim.executor_token,
            )
        )
    return response


def answer_from_pb(message: pb.LakeTieringHeartbeatResponse) -> HeartbeatAnswer:
    """Return the answer to a heartbeat."""
    claim = None
    if message.HasField("tiering_table"):
        table = message.tiering_table
        path = path_from_pb(table.table_path)
        claim = Claim(table.table_id, path, table.tiering_epoch, message.coordinator_epoch, table.executor_token)
    return HeartbeatAnswer(
        coordinator_epoch=message.coordinator_epoch,
        claim=claim,
        tiering_errors=_errors_from_pb(message.tiering_table_resp),
        finished_errors=_errors_from_pb(message.finished_table_resp),
        failed_errors=_errors_from_pb(message.failed_table_resp),
    )


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
