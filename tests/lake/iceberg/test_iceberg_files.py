"""The files of a round, as executors write them and Iceberg and Spark find them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from table_support import (
    COLUMNS,
    PATH,
    name,
)

from fluss_tiering.lake.iceberg.metadata.locations import FileLocations
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath


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
