"""Calls for tiering: heartbeats to the coordinator, and the two calls that register a lake snapshot with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fluss_tiering.api.fluss.v1 import lake_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, HeartbeatEntry
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind
from fluss_tiering.storage.fluss.rpc.calls.cluster import path_to_pb
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError, raise_for

KEEP_ALL_SNAPSHOTS: Final = -1
"""With this value `commit_lake_snapshot` keeps the offsets files of older snapshots, as Fluss's Flink tiering does."""


def heartbeat(
    *,
    tiering: Iterable[HeartbeatEntry] = (),
    finished: Iterable[HeartbeatEntry] = (),
    failed: Iterable[HeartbeatEntry] = (),
    request_table: bool = False,
    force_finished: Sequence[int] = (),
) -> Call[lake_pb2.LakeTieringHeartbeatResponse, HeartbeatAnswer]:
    """Report rounds and, if wanted, ask for a pending table. The answer names the error of each refused table.

    Of an entry's statistics, only the size of the lake table is sent, which Fluss 1.0 shows in its metrics. Reasons are
    not sent, since Fluss takes none. A request for a table is not
    repeated, since the answer that was lost may have claimed one.

    Args:
        tiering: The tables whose rounds are running.
        finished: The tables whose rounds have finished.
        failed: The tables whose rounds have failed.
        request_table: Whether to ask for a pending table.
        force_finished: The ids of the tables among `finished` that are to be pending again at once.
    """
    return Call(
        ApiKey.LAKE_TIERING_HEARTBEAT,
        lake_pb2.LakeTieringHeartbeatRequest(
            tiering_tables=map(_entry, tiering),
            finished_tables=map(_entry, finished),
            failed_tables=map(_entry, failed),
            request_table=request_table,
            force_finished_tables=force_finished,
        ),
        lake_pb2.LakeTieringHeartbeatResponse,
        _answer,
        ServerKind.COORDINATOR,
        repeatable=not request_table,
    )


def prepare_lake_snapshot(
    path: TablePath,
    table_id: int,
    log_end_offsets: Mapping[TableBucket, int],
    *,
    ignore_previous_offsets: bool = False,
) -> Call[lake_pb2.PrepareLakeTableSnapshotResponse, str]:
    """Let the coordinator write an offsets file, and return the file's path.

    The file has the offsets of the current lake snapshot too, except with `ignore_previous_offsets`, for a table whose
    offsets file cannot be read. Fluss checks only that there was such a table.
    """
    offsets = lake_pb2.PbTableOffsets(table_id=table_id, table_path=path_to_pb(path))
    for bucket, offset in log_end_offsets.items():
        offsets.bucket_offsets.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_end_offset=offset)
    return Call(
        ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT,
        lake_pb2.PrepareLakeTableSnapshotRequest(
            bucket_offsets=[offsets], ignore_previous_table_offsets=ignore_previous_offsets
        ),
        lake_pb2.PrepareLakeTableSnapshotResponse,
        lambda response: _prepared(response, path),
        ServerKind.COORDINATOR,
    )


def commit_lake_snapshot(
    table_id: int,
    snapshot_id: int,
    offsets_path: str,
    log_end_offsets: Mapping[TableBucket, int],
    *,
    earliest_snapshot_id_to_keep: int = KEEP_ALL_SNAPSHOTS,
) -> Call[lake_pb2.CommitLakeTableSnapshotResponse, None]:
    """Register a lake snapshot with its offsets file as the table's latest one.

    The offsets also decide which segments of the remote log may expire. Fluss checks nothing, not even that the table
    exists, and a path without a file makes the table unusable. The caller must have checked the table's id, its own
    epoch, the snapshot and the file.
    """
    request = lake_pb2.CommitLakeTableSnapshotRequest(
        lake_table_snapshot_metadata=[
            lake_pb2.PbLakeTableSnapshotMetadata(
                table_id=table_id,
                snapshot_id=snapshot_id,
                tiered_bucket_offsets_file_path=offsets_path,
                readable_bucket_offsets_file_path=offsets_path,
                earliest_snapshot_id_to_keep=earliest_snapshot_id_to_keep,
            )
        ]
    )
    table = request.tables_req.add(table_id=table_id, snapshot_id=snapshot_id)
    for bucket, offset in log_end_offsets.items():
        table.buckets_req.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_end_offset=offset)
    return Call(
        ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT,
        request,
        lake_pb2.CommitLakeTableSnapshotResponse,
        lambda response: _committed(response, table_id),
        ServerKind.COORDINATOR,
    )


def lake_snapshot(
    path: TablePath, *, snapshot_id: int | None = None, readable: bool = False
) -> Call[lake_pb2.GetLakeSnapshotResponse, LakeSnapshot]:
    """Ask for the latest lake snapshot of a table, for the latest readable one, or for the one with this id.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; LAKE_SNAPSHOT_NOT_EXIST if the table has no such
            lake snapshot.
    """
    return Call(
        ApiKey.GET_LAKE_SNAPSHOT,
        # Fluss decides by which of the two fields is present; only one of them may be.
        lake_pb2.GetLakeSnapshotRequest(
            table_path=path_to_pb(path), snapshot_id=snapshot_id, readable=True if readable else None
        ),
        lake_pb2.GetLakeSnapshotResponse,
        lambda response: LakeSnapshot(
            response.table_id,
            response.snapshot_id,
            {
                TableBucket(
                    response.table_id, each.bucket_id, each.partition_id if each.HasField("partition_id") else None
                ): each.log_offset
                for each in response.bucket_snapshots
                if each.HasField("log_offset")
            },
        ),
        ServerKind.ANY,
    )


def _entry(entry: HeartbeatEntry) -> lake_pb2.PbHeartbeatReqForTable:
    stats = entry.stats
    return lake_pb2.PbHeartbeatReqForTable(
        table_id=entry.table_id,
        coordinator_epoch=entry.coordinator_epoch,
        tiering_epoch=entry.tiering_epoch,
        lake_tiering_stats=None
        if stats is None or stats.lake_file_size is None or stats.lake_record_count is None
        else lake_pb2.PbLakeTieringStats(file_size=stats.lake_file_size, record_count=stats.lake_record_count),
    )


def _answer(response: lake_pb2.LakeTieringHeartbeatResponse) -> HeartbeatAnswer:
    claim = None
    if response.HasField("tiering_table"):
        table = response.tiering_table
        path = TablePath(table.table_path.database_name, table.table_path.table_name)
        claim = Claim(table.table_id, path, table.tiering_epoch)
    return HeartbeatAnswer(
        response.coordinator_epoch,
        claim,
        _refused(response.tiering_table_resp),
        _refused(response.finished_table_resp),
        _refused(response.failed_table_resp),
    )


def _refused(tables: Iterable[lake_pb2.PbHeartbeatRespForTable]) -> dict[int, FlussTieringError]:
    return {
        each.table_id: FlussServerError.of(each.error.error_code, each.error.error_message, f"table {each.table_id}")
        for each in tables
        if each.HasField("error") and each.error.error_code != 0
    }


def _prepared(response: lake_pb2.PrepareLakeTableSnapshotResponse, path: TablePath) -> str:
    for each in response.prepare_lake_table_resp:
        raise_for(each.error_code, each.error_message, f"the offsets of {path}")
        return each.lake_table_offsets_path
    raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"Fluss's answer says nothing about the offsets of {path}")


def _committed(response: lake_pb2.CommitLakeTableSnapshotResponse, table_id: int) -> None:
    for each in response.table_resp:
        if each.table_id == table_id:
            raise_for(each.error_code, each.error_message, f"the lake snapshot of table {table_id}")
            return
    raise FlussTieringError(
        ErrorCode.CORRUPT_DATA, f"Fluss's answer says nothing about the lake snapshot of table {table_id}"
    )
