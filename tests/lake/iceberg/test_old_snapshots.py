"""Which snapshots may be expired, what is known when others have expired some, and which key indexes are orphans."""

from __future__ import annotations

import time
import uuid

import pytest
from lake_support import Lake

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.expiry import Expirable, expirable_snapshots
from fluss_tiering.lake.iceberg.file_counts import FileCounts, file_counts, manifest_sizes
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath

COLUMNS = (Column("k", DataType.parse("INT NOT NULL")), Column("v", DataType.parse("STRING")))
LATER_MS = 1000 * 60 * 60
"""An hour: every snapshot of a test is older than what is in an hour."""


@pytest.fixture
def table(lake_properties) -> TableInfo:
    return TableInfo(1, TablePath("db", "t"), 1, TableDescriptor(COLUMNS, ("k",), ("k",), 1), 0, lake_properties)


def commits(catalogs: IcebergCatalogs, table: TableInfo, count: int) -> list[int]:
    """Make so many snapshots, and return their ids, the oldest first."""
    return [
        catalogs.open_table(table).commit([], LakeCommit(1, 5, str(uuid.uuid4()), "/offsets", {TableBucket(1, 0): end}))
        for end in range(1, count + 1)
    ]


def in_an_hour() -> int:
    return int(time.time() * 1000) + LATER_MS


def expirable(lake: IcebergTable, known: int | None, *, age: int | None, last: int | None) -> Expirable:
    return expirable_snapshots(lake, known, older_than_ms=age, retain_last=last)


def test_what_recovery_needs_is_kept_at_any_age(catalogs: IcebergCatalogs, table: TableInfo):
    made = commits(catalogs, table, 5)
    lake = catalogs.open_table(table)

    # A round that recovers walks from the newest snapshot down to the one that the storage knows.
    assert expirable(lake, made[2], age=in_an_hour(), last=1) == Expirable(made[:2], 2, 5)
    assert expirable(lake, made[4], age=in_an_hour(), last=1) == Expirable(made[:4], 0, 5)
    assert expirable(lake, None, age=in_an_hour(), last=1) == Expirable([], 4, 5)


def test_the_number_and_the_age_of_snapshots_count(catalogs: IcebergCatalogs, table: TableInfo):
    made = commits(catalogs, table, 5)
    lake = catalogs.open_table(table)

    assert expirable(lake, made[4], age=in_an_hour(), last=3).free == made[:2]
    assert expirable(lake, made[4], age=0, last=1) == Expirable([], 0, 5)
    # By itself Iceberg keeps snapshots for five days.
    assert expirable(lake, made[4], age=None, last=1) == Expirable([], 0, 5)
    properties = lake.java_table.updateProperties()
    properties.set("history.expire.max-snapshot-age-ms", "1").set("history.expire.min-snapshots-to-keep", "2").commit()
    time.sleep(0.01)
    assert expirable(catalogs.open_table(table), made[4], age=None, last=None).free == made[:3]


def test_a_table_without_snapshots_has_nothing_to_expire(catalogs: IcebergCatalogs, table: TableInfo):
    assert expirable(catalogs.open_table(table), None, age=in_an_hour(), last=1) == Expirable([], 0, 0)


def test_a_lake_that_lacks_the_known_snapshot_is_left_alone(catalogs: IcebergCatalogs, table: TableInfo):
    commits(catalogs, table, 3)
    with pytest.raises(FlussTieringError) as refused:
        expirable(catalogs.open_table(table), 12345, age=in_an_hour(), last=1)
    assert refused.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_an_age_of_the_branch_that_would_expire_what_recovery_needs_is_named(
    catalogs: IcebergCatalogs, table: TableInfo
):
    made = commits(catalogs, table, 5)
    lake = catalogs.open_table(table)
    lake.java_table.manageSnapshots().setMaxSnapshotAgeMs("main", 1).setMinSnapshotsToKeep("main", 1).commit()
    time.sleep(0.01)
    with pytest.raises(FlussTieringError, match="has a snapshot age of its own") as refused:
        expirable(catalogs.open_table(table), made[1], age=in_an_hour(), last=1)
    assert refused.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    assert any(str(snapshot) in refused.value.message for snapshot in made[1:])


def test_a_known_snapshot_that_somebody_else_expired_is_still_found(catalogs: IcebergCatalogs, table: TableInfo):
    made = commits(catalogs, table, 5)
    catalogs.open_table(table).java_table.expireSnapshots().expireOlderThan(in_an_hour()).retainLast(1).commit()

    for known in (made[0], made[1], made[3]):
        found = catalogs.open_table(table).unregistered_commit(known)
        assert found is not None
        assert (found.snapshot_id, dict(found.commit.log_end_offsets)) == (made[4], {TableBucket(1, 0): 5})
    assert catalogs.open_table(table).unregistered_commit(made[4]) is None
    with pytest.raises(FlussTieringError) as refused:
        catalogs.open_table(table).unregistered_commit(12345)
    assert refused.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_older_metadata_that_cannot_be_read_proves_nothing(catalogs: IcebergCatalogs, table: TableInfo, tmp_path):
    made = commits(catalogs, table, 4)
    catalogs.open_table(table).java_table.expireSnapshots().expireOlderThan(in_an_hour()).retainLast(1).commit()
    files = sorted(tmp_path.glob("warehouse/db/t/metadata/*.metadata.json"))
    # What is known of the first snapshots stands in every file from theirs on.
    for file in files[:-2]:
        file.write_text("{")
    found = catalogs.open_table(table).unregistered_commit(made[0])
    assert found is not None
    assert found.snapshot_id == made[3]
    files[-2].write_text("{")
    with pytest.raises(FlussTieringError) as refused:
        catalogs.open_table(table).unregistered_commit(made[0])
    assert refused.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_the_files_of_a_table_are_counted(spark, tmp_path):
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    assert file_counts(lake.open().java_table) == FileCounts(0, 0, 0, 0, 0)
    first = lake.commit(lake.batch([{"k": 1, "v": "a"}]), lake.batch([{"k": 2, "v": "b"}]), apart=True)
    second = lake.commit(lake.batch([{"k": 1, "v": "c"}]), upsert=True)

    opened = lake.open().java_table
    size = sum(file.size_bytes for file in (*first, *second))
    assert file_counts(opened) == FileCounts(
        data_files=3, delete_files=1, position_deletes=0, file_bytes=size, equality_deletes=1
    )
    manifests = [path.stat().st_size for path in tmp_path.glob("db/t/metadata/*-m*.avro")]
    assert sorted(manifest_sizes(opened)) == sorted(manifests)


def test_rows_that_somebody_deleted_by_position_are_counted(spark, tmp_path):
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    lake.commit(lake.batch([{"k": number, "v": "a"} for number in range(3)]))
    spark.sql(f"DELETE FROM {lake.name}.db.t WHERE k > 0")

    counts = file_counts(lake.open().java_table)

    assert (counts.data_files, counts.delete_files, counts.position_deletes, counts.equality_deletes) == (1, 1, 2, 0)


# Commits of other services


def foreign(catalogs: IcebergCatalogs, table: TableInfo) -> int:
    """Commit as Flink's tiering service does, which names its offsets in a file of the storage."""
    append = catalogs.open_table(table).java_table.newAppend()
    append.set("commit-user", "__fluss_lake_tiering").set("fluss-offsets", "/offsets/theirs").commit()
    base = catalogs.open_table(table).base()
    assert base is not None
    return base


def test_the_newest_commit_of_ours_lies_below_those_of_others(catalogs: IcebergCatalogs, table: TableInfo):
    assert catalogs.open_table(table).newest_commit() is None
    made = commits(catalogs, table, 2)
    foreign(catalogs, table)
    newest = catalogs.open_table(table).newest_commit()
    assert newest is not None
    assert (newest.snapshot_id, dict(newest.commit.log_end_offsets)) == (made[1], {TableBucket(1, 0): 2})
