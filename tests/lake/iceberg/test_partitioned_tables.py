"""The files of a round, as Iceberg and Spark find them, and buckets of partitions in a lake table."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from table_support import COLUMNS, PATH, commit_of, name

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.iceberg import table as table_module
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.metadata.locations import FileLocations
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath

BY_DAY = (
    Column("day", DataType.parse("STRING NOT NULL")),
    Column("k", DataType.parse("INT NOT NULL")),
    Column("v", DataType.parse("STRING")),
)
Row = tuple[str, int, str]


@pytest.fixture(params=["key", "log"])
def table(request, lake_properties) -> TableInfo:
    key = (("day", "k"), ("k",)) if request.param == "key" else ((), ())
    descriptor = TableDescriptor(BY_DAY, *key, 2, partition_keys=("day",))
    return TableInfo(1, TablePath("db", "t"), 1, descriptor, 0, lake_properties)


def files_of(lake: IcebergTable, day: str, bucket: int, rows: Sequence[tuple[int, str]]) -> list[LakeFile]:
    location = lake.piece_location(bucket, str(uuid.uuid4()), (day,))
    writer = lake.file_writer().open_piece(bucket, location, 0, (day,))
    columns = {"day": [day] * len(rows), "k": [key for key, _ in rows], "v": [value for _, value in rows]}
    stamps = np.arange(len(rows))
    writer.write(pa.RecordBatch.from_pydict(columns, schema=arrow_schema(BY_DAY)), stamps, stamps)
    return list(writer.close())


def rows(spark, table: TableInfo) -> list[Row]:
    name = f"{table.lake_catalog_properties['name']}.{table.path}"
    return sorted(tuple(row) for row in spark.sql(f"SELECT day, k, v FROM {name}").collect())


@pytest.fixture
def filled(catalogs: IcebergCatalogs, table: TableInfo) -> IcebergTable:
    """The table with a row in three places."""
    lake = catalogs.open_table(table)
    places = [("mon", 0, [(1, "a")]), ("mon", 1, [(2, "b")]), ("tue", 0, [(3, "c")])]
    lake.commit([[file for place in places for file in files_of(lake, *place)]], commit_of(1))
    return catalogs.open_table(table)


def test_partitions_are_known_by_the_buckets_that_have_rows(catalogs: IcebergCatalogs, table, filled: IcebergTable):
    def held(**places: list[int]) -> list[str]:
        return sorted(
            values[0] for values in filled.partitions_with_rows({(day,): each for day, each in places.items()})
        )

    assert held(mon=[0], tue=[0], wed=[0]) == ["mon", "tue"]
    assert held(mon=[1], tue=[1], wed=[1]) == ["mon"]
    assert held(mon=[0, 1], tue=[0, 1]) == ["mon", "tue"]
    assert held(tue=[1], wed=[0, 1]) == []
    assert held() == []


def test_many_partitions_are_not_looked_at_one_by_one(filled: IcebergTable):
    places = {(f"day {number}",): [0] for number in range(65)}
    assert set(filled.partitions_with_rows(places)) == set(places)
    assert list(filled.partitions_with_rows(dict(list(places.items())[:64]))) == []


def test_a_lake_table_without_rows_has_none_in_any_partition(catalogs: IcebergCatalogs, table: TableInfo):
    assert list(catalogs.open_table(table).partitions_with_rows({("mon",): [0]})) == []


def test_all_rows_of_a_bucket_of_a_partition_are_replaced(spark, catalogs, table, filled: IcebergTable):  # D44
    again = files_of(filled, "mon", 0, [(5, "again")])
    base = filled.base()

    snapshot = filled.commit([again], commit_of(2), removed=[(0, ("mon",))])

    assert rows(spark, table) == [("mon", 2, "b"), ("mon", 5, "again"), ("tue", 3, "c")]
    opened = catalogs.open_table(table)
    assert opened.base() == snapshot
    found = opened.unregistered_commit(base)
    assert found is not None
    assert (found.snapshot_id, dict(found.commit.log_end_offsets)) == (snapshot, {TableBucket(1, 0): 2})


def test_rows_that_are_removed_beside_another_commit_stay(spark, catalogs, table, filled: IcebergTable):  # D44
    again = files_of(filled, "mon", 0, [(5, "again")])
    other = catalogs.open_table(table)
    other.commit([files_of(other, "mon", 1, [(6, "theirs")])], commit_of(3))

    with pytest.raises(FlussTieringError) as refused:
        filled.commit([again], commit_of(2), removed=[(0, ("mon",))])

    assert refused.value.code is ErrorCode.LAKE_CONFLICT
    assert rows(spark, table) == [("mon", 1, "a"), ("mon", 2, "b"), ("mon", 6, "theirs"), ("tue", 3, "c")]


def test_rows_that_are_removed_beside_a_compaction_do_not_stay(spark, catalogs, table, filled: IcebergTable):
    again = files_of(filled, "mon", 0, [(5, "again")])
    catalog = table.lake_catalog_properties["name"]
    every_file = f"table => '{table.path}', options => map('rewrite-all', 'true')"
    spark.sql(f"CALL {catalog}.system.rewrite_data_files({every_file})")

    with pytest.raises(FlussTieringError) as refused:
        filled.commit([again], commit_of(2), removed=[(0, ("mon",))])

    assert refused.value.code is ErrorCode.LAKE_CONFLICT
    assert rows(spark, table) == [("mon", 1, "a"), ("mon", 2, "b"), ("tue", 3, "c")]


@pytest.mark.parametrize("table", ["key"], indirect=True)
def test_only_the_partitions_of_a_round_are_listed(catalogs, table: TableInfo, monkeypatch):
    days = ["mon", "it's", "a=b/c", "ü", *(f"old {number}" for number in range(10))]
    lake = catalogs.open_table(table)
    lake.commit(
        [[file for day in days for bucket in (0, 1) for file in files_of(lake, day, bucket, [(1, "x")])]], commit_of(1)
    )
    lake = catalogs.open_table(table)
    listed, live_data_files = [], table_module.live_data_files

    def noted(*arguments, **where):
        for file in live_data_files(*arguments, **where):
            listed.append(file.partition)
            yield file

    monkeypatch.setattr(table_module, "live_data_files", noted)
    wanted = [(0, ("it's",)), (1, ("it's",)), (1, ("a=b/c",)), (0, ("ü",)), (0, ("new",))]
    found = lake.live_files(wanted)

    assert {place: [file.partition for file in files] for place, files in found.items()} == {
        (bucket, (day,)): [] if day == "new" else [(day, bucket)] for bucket, (day,) in wanted
    }
    assert sorted(listed) == sorted((day, bucket) for day in ("it's", "a=b/c", "ü") for bucket in (0, 1))
    monkeypatch.setattr(table_module, "_MAX_PARTITIONS_LOOKED_AT", 3)
    listed.clear()
    assert lake.live_files(wanted) == found
    assert len(listed) == 2 * len(days)


# D51: Iceberg is asked once for a partition, not once for each of a hundred thousand buckets
@pytest.mark.parametrize("object_storage", [False, True])
def test_files_are_placed_where_iceberg_s_location_provider_says(spark, catalogs, lake_properties, object_storage):
    descriptor = TableDescriptor((*COLUMNS, Column("day", DataType.parse("STRING NOT NULL"))), partition_keys=("day",))
    table = TableInfo(1, PATH, 1, replace(descriptor, num_buckets=3), 0, lake_properties)
    catalogs.open_table(table)
    spark.sql(f"ALTER TABLE {name(table)} SET TBLPROPERTIES ('write.object-storage.enabled'='{object_storage}')")
    lake = catalogs.open_table(table)

    spec, provider = lake.java_table.spec(), lake.java_table.locationProvider()
    data_files = spark._jvm.org.apache.iceberg.DataFiles
    for day in ("2024-01-01", "a b+c"):
        for bucket, file_name in ((0, "a"), (2, "b"), (1, "c")):
            partition = data_files.data(spec, f"day={day}/__bucket={bucket}")
            expected = provider.newDataLocation(spec, partition, file_name)
            assert lake.piece_location(bucket, file_name, (day,)) == expected


# D51
@pytest.mark.parametrize("clean", [False, True])
def test_iceberg_is_asked_for_the_folder_of_a_partition_only_once(
    spark, catalogs, log, lake_properties, monkeypatch, clean
):
    descriptor = TableDescriptor((*COLUMNS, Column("day", DataType.parse("STRING NOT NULL"))), partition_keys=("day",))
    table = TableInfo(1, TablePath("db", "days"), 1, replace(descriptor, num_buckets=50), 0, lake_properties)
    if clean:
        catalogs.open_table(log)
        columns = "k INT NOT NULL, v STRING, day STRING NOT NULL"
        spark.sql(f"CREATE TABLE {name(table)} ({columns}) USING iceberg PARTITIONED BY (day)")
    lake = catalogs.open_table(table)
    asked = []
    ask = FileLocations._asked

    def asking(self, files, values) -> list[str]:
        asked.append(values)
        return ask(self, files, values)

    monkeypatch.setattr(FileLocations, "_asked", asking)
    for day in ("mon", "tue"):
        places = {lake.piece_location(bucket, f"f{bucket}", (day,)) for bucket in range(50)}
        folder = f"{lake.data_location()}/day={day}"
        assert places == {f"{folder}/" + ("" if clean else f"__bucket={each}/") + f"f{each}" for each in range(50)}
    assert set(asked) == {("mon",), ("tue",)}
    assert len(asked) == 2


@pytest.mark.parametrize("column", ["a=b", "a/b", "a%2Fb", "a b", "日本", "a.b", "a=b/c="])
def test_files_have_a_place_whatever_the_key_columns_are_called(spark, catalogs, lake_properties, column):
    # A table whose key had "=" or "/" in its name failed each round.
    key, day = (Column(each, DataType.parse("STRING NOT NULL")) for each in (column, f"{column} day"))
    descriptor = TableDescriptor(
        (key, day),
        primary_key=(key.name, day.name),
        bucket_keys=(key.name,),
        num_buckets=2,
        partition_keys=(day.name,),
    )
    lake = catalogs.open_table(TableInfo(1, PATH, 1, descriptor, 0, lake_properties))
    places = {lake.piece_location(bucket, "f", (value,)) for bucket in (0, 1) for value in ("mon", "a=b/c")}
    assert len(places) == 4
    folder = lake.data_location()
    assert all(place.startswith(f"{folder}/") and place.endswith("/f") for place in places)
