"""Tiering: heartbeats to the coordinator, and the two steps that make a lake snapshot known to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fluss_tiering.api.fluss.v1 import lake_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, HeartbeatEntry
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, Role
from fluss_tiering.storage.fluss.rpc.calls.metadata import path_to_pb
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError, raise_for

KEEP_ALL_SNAPSHOTS: Final = -1
"""For `commit_lake_snapshot`: the offsets files of older snapshots stay, as with Fluss's Flink tiering."""


def heartbeat(
    *,
    tiering: Iterable[HeartbeatEntry] = (),
    finished: Iterable[HeartbeatEntry] = (),
    failed: Iterable[HeartbeatEntry] = (),
    request_table: bool = False,
    force_finished: Sequence[int] = (),
) -> Call[lake_pb2.LakeTieringHeartbeatResponse, HeartbeatAnswer]:
    """Reports rounds and may ask for a pending table; what is refused stands in the answer by table.

    `force_finished` are table ids, which must be among `finished`. Reasons and statistics of the entries are not sent:
    Fluss 0.9.1 takes none. A request for a table is not repeated: its lost answer may have claimed one.
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
        Role.COORDINATOR,
        repeatable=not request_table,
    )


def prepare_lake_snapshot(
    path: TablePath,
    table_id: int,
    log_end_offsets: Mapping[TableBucket, int],
    *,
    ignore_previous_offsets: bool = False,
) -> Call[lake_pb2.PrepareLakeTableSnapshotResponse, str]:
    """Has the coordinator write an offsets file, merged with the current lake snapshot's; its path.

    Fluss checks none of it, only that there was such a table. With `ignore_previous_offsets` nothing is merged: what
    was committed before may be unreadable.
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
        Role.COORDINATOR,
    )


def commit_lake_snapshot(
    table_id: int,
    snapshot_id: int,
    offsets_path: str,
    log_end_offsets: Mapping[TableBucket, int],
    *,
    earliest_snapshot_id_to_keep: int = KEEP_ALL_SNAPSHOTS,
) -> Call[lake_pb2.CommitLakeTableSnapshotResponse, None]:
    """Makes a lake snapshot with its offsets file the table's; the offsets also tell when the remote log may expire.

    Fluss checks none of it, not even that the table exists; a file that does not makes the table unusable. Who commits
    must have checked the table's id, its own epoch, the snapshot and the file.
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
        Role.COORDINATOR,
    )


def lake_snapshot(
    path: TablePath, *, snapshot_id: int | None = None, readable: bool = False
) -> Call[lake_pb2.GetLakeSnapshotResponse, LakeSnapshot]:
    """The latest lake snapshot of a table, or the latest readable one, or that one.

    Raises TABLE_NOT_EXIST; LAKE_SNAPSHOT_NOT_EXIST where the table was never tiered.
    """
    return Call(
        ApiKey.GET_LAKE_SNAPSHOT,
        # Either may be asked for alone; Fluss decides by which of the fields is there.
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
        Role.ANY,
    )


def _entry(entry: HeartbeatEntry) -> lake_pb2.PbHeartbeatReqForTable:
    return lake_pb2.PbHeartbeatReqForTable(
        table_id=entry.table_id, coordinator_epoch=entry.coordinator_epoch, tiering_epoch=entry.tiering_epoch
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
    raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"Fluss's answer says nothing of the offsets of {path}")


def _committed(response: lake_pb2.CommitLakeTableSnapshotResponse, table_id: int) -> None:
    for each in response.table_resp:
        if each.table_id == table_id:
            raise_for(each.error_code, each.error_message, f"the lake snapshot of table {table_id}")
            return
    raise FlussTieringError(
        ErrorCode.CORRUPT_DATA, f"Fluss's answer says nothing of the lake snapshot of table {table_id}"
    )
