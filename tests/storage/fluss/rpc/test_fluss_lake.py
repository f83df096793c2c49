import json
from pathlib import Path

import pyarrow as pa
import pytest
from fluss_tables import COLUMNS, descriptor, new_table, rows, upsert
from refusals import refused

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, HeartbeatEntry, TieringStats
from fluss_tiering.storage.fluss.rpc.calls.kv import (
    acquire_lease,
    kv_snapshot_files,
    latest_kv_snapshots,
    release_lease,
)
from fluss_tiering.storage.fluss.rpc.calls.lake import (
    commit_lake_snapshot,
    heartbeat,
    lake_snapshot,
    prepare_lake_snapshot,
)
from fluss_tiering.storage.fluss.rpc.calls.tables import create_partition, drop_table, list_partitions
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from waiting import wait_until


def lake_table(fluss: FlussClient, *, freshness: str = "1h") -> TableInfo:
    return new_table(fluss, descriptor(tiered=True, num_buckets=2, **{"table.datalake.freshness": freshness}))


def entry(fluss: FlussClient, claim: Claim, **changed) -> HeartbeatEntry:
    """As the coordinator expects it that leads now, unless it is changed."""
    epochs = {"coordinator_epoch": fluss.call(heartbeat()).coordinator_epoch, **changed}
    return HeartbeatEntry(claim.table_id, epochs.pop("epoch", claim.tiering_epoch), **epochs)


def claimed(fluss: FlussClient, made: TableInfo, first: Claim | None = None) -> Claim:
    """Wait until the table is handed out, and finish other tables that are handed out before it, such as the first."""

    def own(claim: Claim | None) -> Claim | None:
        if claim is None or claim.table_id == made.table_id:
            return claim
        fluss.call(heartbeat(finished=[entry(fluss, claim)]))
        return None

    return own(first) or wait_until(lambda: own(fluss.call(heartbeat(request_table=True)).claim))


def names(errors: dict) -> dict[int, FlussError]:
    return {table_id: error.fluss_error for table_id, error in errors.items()}


def test_a_table_is_claimed_kept_and_finished(fluss: FlussClient) -> None:
    made = lake_table(fluss, freshness="1s")
    claim = claimed(fluss, made)
    assert (claim.path, claim.tiering_epoch) == (made.path, 1)
    table_id = made.table_id
    kept = fluss.call(heartbeat(tiering=[entry(fluss, claim)]))
    assert kept == HeartbeatAnswer(coordinator_epoch=kept.coordinator_epoch)
    # A heartbeat with another epoch of the table or of the coordinator is refused.
    assert names(fluss.call(heartbeat(tiering=[entry(fluss, claim, epoch=0)])).tiering_errors) == {
        table_id: FlussError.FENCED_TIERING_EPOCH_EXCEPTION
    }
    stranger = fluss.call(heartbeat(failed=[entry(fluss, claim, coordinator_epoch=7777)]))
    assert names(stranger.failed_errors) == {table_id: FlussError.INVALID_COORDINATOR_EXCEPTION}
    assert stranger.failed_errors[table_id].code is ErrorCode.INVALID_COORDINATOR

    finished = fluss.call(
        heartbeat(finished=[entry(fluss, claim, stats=TieringStats(rows=3, lake_file_size=700, lake_record_count=12))])
    )
    assert finished.finished_errors == {}
    # It is no error to finish a table twice, but it is one to keep a finished table alive.
    assert fluss.call(heartbeat(finished=[entry(fluss, claim)])).finished_errors == {}
    assert names(fluss.call(heartbeat(tiering=[entry(fluss, claim)])).tiering_errors) == {
        table_id: FlussError.UNKNOWN_SERVER_ERROR
    }
    # The table is due again after its freshness, with the next epoch.
    again = claimed(fluss, made)
    assert again.tiering_epoch == 2
    # If it is force-finished, it is due at once.
    fluss.call(heartbeat(finished=[entry(fluss, again)], force_finished=[table_id]))
    assert claimed(fluss, made).tiering_epoch == 3
    fluss.call(drop_table(made.path))
    # The coordinator forgets it a moment later.
    gone = wait_until(lambda: fluss.call(heartbeat(tiering=[entry(fluss, again, epoch=3)])).tiering_errors)
    assert names(gone) == {table_id: FlussError.TABLE_NOT_EXIST}


def test_a_failed_table_is_handed_out_again_at_once(fluss: FlussClient) -> None:
    made = lake_table(fluss, freshness="1s")
    claim = claimed(fluss, made)
    # The request that reports the failure can get the table again, so the caller must back off by itself.
    answer = fluss.call(heartbeat(failed=[entry(fluss, claim, error_message="no such catalog")], request_table=True))
    assert answer.failed_errors == {}
    assert claimed(fluss, made, answer.claim) == Claim(made.table_id, made.path, 2)
    fluss.call(drop_table(made.path))


def test_lake_snapshots_are_prepared_and_committed(fluss: FlussClient) -> None:
    made = lake_table(fluss)
    path, table_id = made.path, made.table_id
    first, second = TableBucket(table_id, 0), TableBucket(table_id, 1)
    with refused(ErrorCode.LAKE_SNAPSHOT_NOT_EXIST, str(path)):
        fluss.call(lake_snapshot(path))

    file = fluss.call(prepare_lake_snapshot(path, table_id, {first: 10}))
    assert json.loads(Path(file.removeprefix("file:")).read_text()) == {
        "version": 1,
        "table_id": table_id,
        "bucket_offsets": [10],
    }
    fluss.call(commit_lake_snapshot(table_id, 101, file, {first: 10}))
    known = fluss.call(lake_snapshot(path))
    assert (known.snapshot_id, known.log_end_offsets) == (101, {first: 10})

    # The next snapshot has the offsets of the last one too, and older ones stay known.
    file = fluss.call(prepare_lake_snapshot(path, table_id, {second: 5}))
    fluss.call(commit_lake_snapshot(table_id, 102, file, {second: 5}))
    known = fluss.call(lake_snapshot(path, readable=True))
    assert (known.snapshot_id, known.log_end_offsets) == (102, {first: 10, second: 5})
    assert fluss.call(lake_snapshot(path, snapshot_id=101)).log_end_offsets == {first: 10}
    with refused(ErrorCode.LAKE_SNAPSHOT_NOT_EXIST, "103"):
        fluss.call(lake_snapshot(path, snapshot_id=103))


def test_partitions_are_snapshot_leased_and_committed(fluss: FlussClient) -> None:
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL")))
    options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}
    made = new_table(
        fluss,
        TableDescriptor(
            columns=columns,
            primary_key=("id", "day"),
            bucket_keys=("id",),
            properties=options,
            partition_keys=("day",),
        ),
    )
    path, table_id = made.path, made.table_id
    for day in ("monday", "tuesday"):
        fluss.call(create_partition(path, {"day": day}))
    ids = {each.name: each.partition_id for each in fluss.call(list_partitions(path))}
    monday, tuesday = (TableBucket(table_id, 0, ids[day]) for day in ("monday", "tuesday"))
    batch = rows(0, 3).append_column("day", pa.array(["monday"] * 3))
    batch = batch.cast(arrow_schema(columns))
    assert upsert(fluss, made, batch, partition_id=ids["monday"]) == 3

    latest = wait_until(lambda: fluss.call(latest_kv_snapshots(path, "monday"))[monday])
    assert latest.log_offset == 3
    assert fluss.call(acquire_lease("parts", 60_000, {monday: latest.snapshot_id})) == {}
    assert fluss.call(kv_snapshot_files(monday, latest.snapshot_id)).log_offset == 3
    fluss.call(release_lease("parts", [monday]))
    assert fluss.call(latest_kv_snapshots(path, "tuesday")) == {tuesday: None}

    file = fluss.call(prepare_lake_snapshot(path, table_id, {monday: 3, tuesday: 0}))
    fluss.call(commit_lake_snapshot(table_id, 9, file, {monday: 3, tuesday: 0}))
    assert fluss.call(lake_snapshot(path)).log_end_offsets == {monday: 3, tuesday: 0}


def test_an_offsets_file_that_is_not_there_poisons_the_table(fluss: FlussClient) -> None:
    """This is why a path is checked before it is committed, and how to repair the table."""
    made = lake_table(fluss)
    path, table_id = made.path, made.table_id
    bucket = TableBucket(table_id, 0)
    file = fluss.call(prepare_lake_snapshot(path, table_id, {bucket: 10}))
    fluss.call(commit_lake_snapshot(table_id, 1, f"{file}.gone", {bucket: 10}))
    with pytest.raises(FlussServerError) as caught:
        fluss.call(lake_snapshot(path))
    assert caught.value.fluss_error is FlussError.UNKNOWN_SERVER_ERROR
    with pytest.raises(FlussServerError):
        fluss.call(prepare_lake_snapshot(path, table_id, {bucket: 11}))
    file = fluss.call(prepare_lake_snapshot(path, table_id, {bucket: 11}, ignore_previous_offsets=True))
    fluss.call(commit_lake_snapshot(table_id, 2, file, {bucket: 11}))
    assert fluss.call(lake_snapshot(path)).log_end_offsets == {bucket: 11}


def test_the_size_of_the_lake_table_is_reported_where_it_is_known() -> None:
    known = HeartbeatEntry(3, 1, stats=TieringStats(rows=1, lake_file_size=700, lake_record_count=12))
    unknown = HeartbeatEntry(3, 1, stats=TieringStats(rows=1))
    sized, plain, without = heartbeat(finished=[known, unknown, HeartbeatEntry(3, 1)]).request.finished_tables
    # Fluss 1.0: PbHeartbeatReqForTable.lake_tiering_stats = 4 {file_size = 1, record_count = 2}, of varints.
    assert sized.SerializeToString() == plain.SerializeToString() + b"\x22\x05\x08\xbc\x05\x10\x0c"
    assert plain == without
