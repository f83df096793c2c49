"""Which snapshots may be expired, what is known when others have expired some, and which key indexes are orphans."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from lake_support import Lake
from table_support import PATH, commit_of

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.expiry import Expirable, expirable_snapshots
from fluss_tiering.lake.iceberg.file_counts import FileCounts, file_counts, manifest_sizes
from fluss_tiering.lake.iceberg.orphans import find_orphans
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.key_index import IndexStore, Place, write_state
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
    return [catalogs.open_table(table).commit([], commit_of(end)) for end in range(1, count + 1)]


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


BY_DAY = (Column("day", DataType.parse("STRING NOT NULL")), Column("k", DataType.parse("INT NOT NULL")))
OLD_S = 5 * 24 * 3600


@pytest.fixture
def table_by_day(catalogs: IcebergCatalogs, lake_properties: dict[str, str]) -> TableInfo:
    """Return a table_by_day with a row in the partition mon, and none in tue."""
    descriptor = TableDescriptor(BY_DAY, ("day", "k"), ("k",), 2, partition_keys=("day",))
    table_by_day = TableInfo(1, PATH, 1, descriptor, 0, lake_properties)
    lake = catalogs.open_table(table_by_day)
    files = []
    for day in ("mon", "tue"):
        location = lake.piece_location(0, str(uuid.uuid4()), (day,))
        writer = lake.file_writer().open_piece(0, location, 0, (day,))
        stamps = pa.array([0]).to_numpy()
        writer.write(pa.RecordBatch.from_pydict({"day": [day], "k": [1]}, arrow_schema(BY_DAY)), stamps, stamps)
        files += writer.close()
    lake.commit([files], commit_of(1))
    tuesday = lake.java_table.newDelete()
    expressions = catalogs._spark._jvm.org.apache.iceberg.expressions.Expressions
    tuesday.deleteFromRowFilter(expressions.equal("day", "tue")).commit()
    return table_by_day


def store_of(lake_table: TableInfo, catalogs: IcebergCatalogs) -> tuple[IndexStore, str]:
    lake = catalogs.open_table(lake_table)
    return lake.index_store(), lake.uuid


def write(store: IndexStore, place: Place, age_s: float = OLD_S, name: str | None = None) -> str:
    """Write a state, or another file, and return the name of its place's folder."""
    path = Path(urlparse(store.location).path, place.folder)
    if name is None:
        write_state(store, place, 7, [])
        path /= "state-7"
    else:
        path.mkdir(parents=True, exist_ok=True)
        path /= name
        path.write_text("x")
    os.utime(path, (time.time() - age_s,) * 2)
    return place.folder


def found(spark, catalogs: IcebergCatalogs, table_by_day: TableInfo) -> Mapping[str, str | None]:
    """Return why the files of indexes are kept that are orphans, by their folders."""
    orphans = find_orphans(spark, table_by_day, catalogs.open_table(table_by_day), timedelta(days=3))
    return {
        each.location.rpartition("/_key_index/")[2].rpartition("/")[0]: each.kept
        for each in orphans
        if "/_key_index/" in each.location
    }


def test_only_indexes_of_partitions_without_rows_are_removed(spark, catalogs, table_by_day):
    assert found(spark, catalogs, table_by_day) == {}
    store, own = store_of(table_by_day, catalogs)
    write(store, Place(own, 0, ("mon",)))
    write(store, Place(own, 0))
    gone = [write(store, Place(own, bucket, ("tue",))) for bucket in (0, 1)]
    # Somebody works on one, the state of another one cannot be read, and what pieces have noted is kept for longer.
    write(store, Place(own, 0, ("wed",)))
    write(store, Place(own, 1, ("wed",)), age_s=0)
    write(store, Place(own, 0, ("thu",)), name="state-8")
    write(store, Place(own, 0, ("fri",)))
    write(store, Place(own, 0, ("fri",)), age_s=3.5 * 24 * 3600, name="noted-1")
    (Path(urlparse(store.location).path) / "strange").write_text("x")

    assert found(spark, catalogs, table_by_day) == dict.fromkeys(gone)

    lake = catalogs.open_table(table_by_day)
    orphans = find_orphans(spark, table_by_day, lake, timedelta(days=3))
    assert lake.delete_locations([each.location for each in orphans]) == []
    assert found(spark, catalogs, table_by_day) == {}
    assert store.files(Place(own, 0, ("mon",)).folder) != []


def test_the_index_of_another_lake_table_is_removed_unless_it_may_live(spark, catalogs, table_by_day):
    store, _ = store_of(table_by_day, catalogs)
    dropped = write(store, Place(str(uuid.uuid4()), 0))
    write(store, Place(str(uuid.uuid4()), 0), age_s=0)
    assert found(spark, catalogs, table_by_day) == {dropped: None}

    # A table_by_day that was only renamed keeps its folder, and its first metadata is here.
    metadata = Path(urlparse(catalogs.open_table(table_by_day).metadata_location()).path)
    first = next(metadata.glob("00000-*.metadata.json"))
    other = metadata / f"00000-{uuid.uuid4()}.metadata.json"
    own = catalogs.open_table(table_by_day).uuid
    other.write_text(first.read_text().replace(own, str(uuid.uuid4())))
    os.utime(other, (time.time() - OLD_S,) * 2)
    ((folder, kept),) = found(spark, catalogs, table_by_day).items()
    assert folder == dropped
    assert kept is not None
    assert "another lake table was made in this folder" in kept


def test_a_plain_file_in_the_place_of_the_folder_has_no_indexes(spark, catalogs, table_by_day):
    store, _ = store_of(table_by_day, catalogs)
    path = Path(urlparse(store.location).path)
    assert not path.exists()
    path.write_text("x")
    assert found(spark, catalogs, table_by_day) == {}
