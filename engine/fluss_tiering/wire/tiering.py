"""Conversions between tiering statuses, rounds, claims, heartbeats and lake snapshots, and their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.error_text import clean_error, mask_secrets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot, MaintenanceReport
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.model.tiering import (
    MAX_PARTITIONS,
    MAX_SENT_ERROR_CHARS,
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    LeaseOutcome,
    RoundOrigin,
    StatusChanges,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
    is_web_address,
)
from fluss_tiering.wire.buckets import bucket_of_table
from fluss_tiering.wire.checks import identifier, not_negative
from fluss_tiering.wire.errors import error_from_pb, error_to_pb
from fluss_tiering.wire.fields import SharedFields
from fluss_tiering.wire.tables import path_from_pb, path_to_pb

_STATES: Final = {state.value: state for state in TieringState}
_STATS: Final = SharedFields(TieringStats, pb.PbTieringStats, "partitions")
_STATUS: Final = SharedFields(TieringStatus, pb.PbTableTieringStatus, "path", "state", "state_since", "interruptions")
_ROUND: Final = SharedFields(TieringRound, pb.PbTieringRound, "path", "state", "coordinator_epoch", "stats", "origin")
_ORIGIN: Final = SharedFields(RoundOrigin, pb.PbRoundOrigin)
_OUTCOME: Final = SharedFields(LeaseOutcome, pb.GetLeaseOutcomeResponse, "rounds")
_ENTRY: Final = SharedFields(HeartbeatEntry, pb.PbHeartbeatReqForTable, "stats")
_MAINTENANCE: Final = SharedFields(MaintenanceReport, pb.PbLakeMaintenance)


def stats_to_pb(stats: TieringStats) -> pb.PbTieringStats:
    """Return the message of a round's stats."""
    return pb.PbTieringStats(**_STATS.of_value(stats), partitions=stats.partitions)


def stats_from_pb(message: pb.PbTieringStats) -> TieringStats:
    """Return the stats of a message.

    Raises:
        FlussTieringError: INVALID_REQUEST if a number is negative, or if there are too many partitions.
    """
    for field in ("rows", "bytes", "files", "lake_file_size", "lake_record_count"):
        not_negative(message, field, getattr(message, field))
    if len(message.partitions) > MAX_PARTITIONS:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"partitions has {len(message.partitions)} names: expected at most {MAX_PARTITIONS}, or none for more",
        )
    return TieringStats(**_STATS.of_message(message), partitions=tuple(message.partitions))


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
        status_since=status.state_since,
        parked=status.parked,
        **_STATUS.of_value(status),
    )


def status_to_bytes(status: TieringStatus) -> bytes:
    """Return a table's status as a serialised entry of the field `tiering_statuses`.

    An answer with many statuses joins these entries, because a serialised message is the concatenation of its entries.
    To build ten thousand messages for each answer would take too long.
    """
    return pb.ListTieringStatusesResponse(tiering_statuses=[status_to_pb(status)]).SerializeToString()


def status_from_pb(message: pb.PbTableTieringStatus) -> TieringStatus:
    """Return the table's status of a message."""
    return TieringStatus(
        path=path_from_pb(message.table_path),
        state=_state_from_pb(message.status),
        state_since=message.status_since,
        **_STATUS.of_message(message),
    )


def statuses_from_pb(message: pb.ListTieringStatusesResponse, *, failing: bool) -> list[TieringStatus]:
    """Return the statuses of an answer, or only those of tables that fail. A server of an older version sends all."""
    statuses = map(status_from_pb, message.tiering_statuses)
    return [each for each in statuses if each.failing or not failing]


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
        table_path=path_to_pb(tiering_round.path),
        status=tiering_round.state.value,
        stats=None if tiering_round.stats is None else stats_to_pb(tiering_round.stats),
        origin=None if tiering_round.origin is None else origin_to_pb(tiering_round.origin),
        **_ROUND.of_value(tiering_round),
    )


def round_from_pb(message: pb.PbTieringRound) -> TieringRound:
    """Return the round of a message."""
    return TieringRound(
        path=path_from_pb(message.table_path),
        state=_state_from_pb(message.status),
        stats=stats_from_pb(message.stats) if message.HasField("stats") else None,
        origin=origin_from_pb(message.origin) if message.HasField("origin") else None,
        **_ROUND.of_message(message),
    )


def origin_to_pb(origin: RoundOrigin) -> pb.PbRoundOrigin:
    """Return the message of where a round was started."""
    return pb.PbRoundOrigin(**_ORIGIN.of_value(origin))


def checked_origin(message: pb.PbRoundOrigin) -> RoundOrigin:
    """Return where a round was started, as a driver told it.

    Raises:
        FlussTieringError: INVALID_REQUEST if a text is too long or not printable, a number is negative, or the address
            of Spark's user interface is none of the web, or has a login.
    """
    for field in ("dag_id", "run_id", "task_id", "spark_application_id", "spark_ui_url"):
        if value := getattr(message, field):
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
    return RoundOrigin(**_ORIGIN.of_message(message))


def rounds_request(path: TablePath | None, lease_id: str | None, limit: int) -> pb.ListTieringRoundsRequest:
    """Return the request for the last rounds of a table, of a lease or of all tables."""
    table_path = None if path is None else path_to_pb(path)
    return pb.ListTieringRoundsRequest(table_path=table_path, lease_id=lease_id, limit=limit)


def cancel_request(lease_id: str, attempt_token: int | None, reason: str) -> pb.CancelTieringRequest:
    """Return the request to fail the running rounds of an attempt. Secrets in the reason are masked."""
    reason = clean_error(reason, MAX_SENT_ERROR_CHARS)
    return pb.CancelTieringRequest(lease_id=lease_id, attempt_token=attempt_token, reason=reason)


def outcome_to_pb(outcome: LeaseOutcome) -> pb.GetLeaseOutcomeResponse:
    """Return the message of a lease's outcome."""
    rounds = [round_to_pb(each) for each in outcome.rounds]
    return pb.GetLeaseOutcomeResponse(rounds=rounds, **_OUTCOME.of_value(outcome))


def outcome_from_pb(message: pb.GetLeaseOutcomeResponse) -> LeaseOutcome:
    """Return the lease's outcome of a message."""
    return LeaseOutcome(rounds=tuple(map(round_from_pb, message.rounds)), **_OUTCOME.of_message(message))


def entry_to_pb(entry: HeartbeatEntry) -> pb.PbHeartbeatReqForTable:
    """Return the message of a report on one table."""
    return pb.PbHeartbeatReqForTable(
        stats=None if entry.stats is None else stats_to_pb(entry.stats), **_ENTRY.of_value(entry)
    )


def entry_from_pb(message: pb.PbHeartbeatReqForTable) -> HeartbeatEntry:
    """Return the report of a message on one table. The sender may leave out `error_message` and `stats`."""
    return HeartbeatEntry(
        stats=stats_from_pb(message.stats) if message.HasField("stats") else None, **_ENTRY.of_message(message)
    )


def maintenance_to_pb(report: MaintenanceReport) -> pb.PbLakeMaintenance:
    """Return the message of a report on maintenance."""
    return pb.PbLakeMaintenance(**_MAINTENANCE.of_value(report))


def maintenance_from_pb(message: pb.PbLakeMaintenance) -> MaintenanceReport:
    """Return the report of a message on maintenance.

    Raises:
        FlussTieringError: INVALID_REQUEST if a number is below 0. Counters only grow.
    """
    for field in ("saved_files", "rewritten_bytes", "expired_snapshots", "deleted_files"):
        not_negative(message, field, getattr(message, field))
    return MaintenanceReport(**_MAINTENANCE.of_message(message))


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


def log_end_offsets_to_pb(offsets: Mapping[TableBucket, int]) -> list[pb.PbBucketLogEndOffset]:
    """Return the messages of log end offsets of one table's buckets."""
    return [
        pb.PbBucketLogEndOffset(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_end_offset=offset)
        for bucket, offset in offsets.items()
    ]


def log_end_offsets_from_pb(table_id: int, messages: Iterable[pb.PbBucketLogEndOffset]) -> dict[TableBucket, int]:
    """Return the log end offsets of a table's buckets, without buckets that have nothing in the lake (-1).

    Raises:
        FlussTieringError: INVALID_REQUEST if an offset is below -1 or a bucket is named twice.
    """
    offsets: dict[TableBucket, int] = {}
    for message in messages:
        bucket = bucket_of_table(table_id, message)
        if bucket in offsets:
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{bucket} is named twice: expected one log end offset")
        if message.log_end_offset < -1:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{bucket}: log end offset {message.log_end_offset}, expected -1 (nothing in the lake) or more",
            )
        if message.log_end_offset >= 0:
            offsets[bucket] = message.log_end_offset
    return offsets


def prepare_request(
    table: TableInfo, tiering_epoch: int, log_end_offsets: Mapping[TableBucket, int]
) -> pb.PrepareLakeTableSnapshotRequest:
    """Return the request to write the offsets file of a lake snapshot that will be registered."""
    offsets = pb.PbTableOffsets(
        table_id=table.table_id,
        table_path=path_to_pb(table.path),
        bucket_offsets=log_end_offsets_to_pb(log_end_offsets),
        tiering_epoch=tiering_epoch,
    )
    return pb.PrepareLakeTableSnapshotRequest(bucket_offsets=[offsets])


def commit_request(  # noqa: PLR0917 - the parts of one record, in the order of the message
    table: TableInfo,
    tiering_epoch: int,
    snapshot_id: int,
    log_end_offsets: Mapping[TableBucket, int],
    offsets_path: str,
    commit_id: str,
) -> pb.CommitLakeTableSnapshotRequest:
    """Return the request to register a lake snapshot."""
    info = pb.PbLakeTableSnapshotInfo(
        table_id=table.table_id,
        snapshot_id=snapshot_id,
        buckets_req=log_end_offsets_to_pb(log_end_offsets),
        table_path=path_to_pb(table.path),
        tiering_epoch=tiering_epoch,
        commit_id=commit_id,
    )
    metadata = pb.PbLakeTableSnapshotMetadata(
        table_id=table.table_id, snapshot_id=snapshot_id, tiered_bucket_offsets_file_path=offsets_path
    )
    return pb.CommitLakeTableSnapshotRequest(tables_req=[info], lake_table_snapshot_metadata=[metadata])


def lake_snapshot_to_pb(snapshot: LakeSnapshot) -> pb.GetLakeSnapshotResponse:
    """Return the message of a lake snapshot."""
    return pb.GetLakeSnapshotResponse(
        table_id=snapshot.table_id,
        snapshot_id=snapshot.snapshot_id,
        bucket_snapshots=[
            pb.PbLakeSnapshotForBucket(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_offset=offset)
            for bucket, offset in snapshot.log_end_offsets.items()
        ],
    )


def lake_snapshot_from_pb(message: pb.GetLakeSnapshotResponse) -> LakeSnapshot:
    """Return the lake snapshot of a message."""
    return LakeSnapshot(
        table_id=message.table_id,
        snapshot_id=message.snapshot_id,
        log_end_offsets={
            bucket_of_table(message.table_id, bucket): bucket.log_offset
            for bucket in message.bucket_snapshots
            if bucket.HasField("log_offset")
        },
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


def _state_from_pb(name: str) -> TieringState:
    state = _STATES.get(name)
    if state is None:
        raise FlussTieringError(
            ErrorCode.UNKNOWN, f"tiering status {name!r} is not known here: expected one of {', '.join(TieringState)}"
        )
    return state
