import shutil
from pathlib import Path

import pyarrow as pa
from fluss_tables import COLUMNS, descriptor, new_table, rows, snapshot_behind, upsert
from refusals import refused
from rocksdict import AccessType, Options, Rdict

from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.rpc.calls.kv import (
    KvSnapshotFiles,
    acquire_lease,
    drop_lease,
    kv_snapshot_files,
    latest_kv_snapshots,
    release_lease,
)
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError
from fluss_tiering.storage.fluss.rpc.table_json import ClusterTable
from waiting import wait_until

HOUR = 3_600_000


def kv_table(fluss: FlussClient) -> tuple[ClusterTable, TableBucket]:
    made = new_table(fluss, descriptor(primary_key=True, tiered=True, **{"table.datalake.freshness": "1h"}))
    return made, TableBucket(made.info.table_id, 0)


def exists(fluss: FlussClient, bucket: TableBucket, snapshot_id: int) -> bool:
    try:
        fluss.call(kv_snapshot_files(bucket, snapshot_id))
    except FlussServerError as error:
        if error.code is not ErrorCode.KV_SNAPSHOT_NOT_EXIST:
            raise
        return False
    return True


def read(files: KvSnapshotFiles, folder: Path) -> pa.RecordBatch:
    """Put the files of a snapshot together in a folder and return its rows."""
    folder.mkdir()
    for name, path in files.files.items():
        shutil.copy(path.removeprefix("file:"), folder / name)
    database = Rdict(str(folder), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        values = pa.array([value for _, value in database.items()], pa.binary())
    finally:
        database.close()
    return decode_values(values, COLUMNS, 1)


def test_a_snapshot_and_the_log_behind_it(fluss: FlussClient, tmp_path: Path) -> None:
    made, bucket = kv_table(fluss)
    assert fluss.call(latest_kv_snapshots(made.info.path)) == {bucket: None}
    upsert(fluss, made, rows(0, 100))
    end = upsert(fluss, made, rows(100, 110), deleted=[3])
    snapshot = snapshot_behind(fluss, made, end)
    files = fluss.call(kv_snapshot_files(bucket, snapshot.snapshot_id))
    assert files.log_offset == snapshot.log_offset == end == 111
    assert {"CURRENT"} < set(files.files)
    expected = [row for row in rows(0, 110).to_pylist() if row["id"] != 3]
    assert sorted(read(files, tmp_path / "db").to_pylist(), key=lambda row: row["id"]) == expected


def test_log_tables_have_none(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    with refused(ErrorCode.TABLE_WITHOUT_PRIMARY_KEY, str(made.info.path)):
        fluss.call(latest_kv_snapshots(made.info.path))


def test_a_lease_keeps_its_snapshot_and_only_as_long_as_it_is_held(fluss: FlussClient) -> None:
    made, bucket = kv_table(fluss)
    leased = snapshot_behind(fluss, made, upsert(fluss, made, rows(0, 2)))
    assert fluss.call(acquire_lease("keep", HOUR, {bucket: leased.snapshot_id})) == {}
    passed = snapshot_behind(fluss, made, upsert(fluss, made, rows(2, 4)))
    snapshot_behind(fluss, made, upsert(fluss, made, rows(4, 6)))
    # One snapshot is retained. The one without a lease is gone, and the older, leased one is there.  # L1
    wait_until(lambda: not exists(fluss, bucket, passed.snapshot_id))
    assert exists(fluss, bucket, leased.snapshot_id)
    fluss.call(release_lease("keep", [bucket]))
    fluss.call(drop_lease("keep"))
    snapshot_behind(fluss, made, upsert(fluss, made, rows(6, 8)))
    wait_until(lambda: not exists(fluss, bucket, leased.snapshot_id))


def test_leases_take_what_does_not_exist(fluss: FlussClient) -> None:
    """This is why the metadata of a leased snapshot are read before a round plans with it."""
    _, bucket = kv_table(fluss)
    assert fluss.call(acquire_lease("wrong", HOUR, {bucket: 4711})) == {}
    assert not exists(fluss, bucket, 4711)
    fluss.call(drop_lease("wrong"))
    # An unknown lease is released and dropped without an error.  # L8
    fluss.call(release_lease("never", [bucket]))
    fluss.call(drop_lease("never"))
