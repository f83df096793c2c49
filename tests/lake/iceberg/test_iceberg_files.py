"""The files of a round, as executors write them and Iceberg and Spark find them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from table_support import (
    COLUMNS,
    PATH,
    commit_of,
    exists,
    name,
    piece,
)

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.metadata.locations import FileLocations
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath

# ruff: noqa: DTZ001 - a TIMESTAMP has no time zone


def test_every_type_comes_back_from_spark_as_it_was(spark, catalogs, lake_properties):
    values = {
        "BOOLEAN": ([True, None], [True, None]),
        "INT": ([-(2**31), None], [-(2**31), None]),
        "BIGINT": ([2**63 - 1, None], [2**63 - 1, None]),
        "DOUBLE": ([-0.5, None], [-0.5, None]),
        "DECIMAL(38, 10)": ([Decimal("-12345.0000000001"), None],) * 2,
        "STRING": (["naïve ☕", None],) * 2,
        "DATE": ([dt.date(1905, 3, 1), None],) * 2,
        "TIMESTAMP(0)": ([dt.datetime(1950, 1, 1, 12), None],) * 2,
        # Nanoseconds are floored, as the bucketing of a key does.
        "TIMESTAMP(9)": (
            pa.array([-1_500_000_001_001, None], pa.timestamp("ns")),
            [dt.datetime(1969, 12, 31, 23, 34, 59, 999998), None],
        ),
        "TIMESTAMP_LTZ(3)": (
            [dt.datetime(2020, 5, 1, 1, 2, 3, 4000), None],
            [dt.datetime(2020, 5, 1, 1, 2, 3, 4000), None],
        ),
    }
    columns = tuple(Column(f"c{i}", DataType.parse(text)) for i, text in enumerate(values))
    table = TableInfo(1, PATH, 1, TableDescriptor(columns), 0, lake_properties)
    schema = arrow_schema(columns)
    arrays = [pa.array(given, field.type) for (given, _), field in zip(values.values(), schema, strict=True)]

    lake = catalogs.open_table(table)
    writer = lake.file_writer().open_piece(0, lake.piece_location(0, "p"), 0)
    writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema), np.array([10, 11]), np.array([1500, 1501]))
    lake.commit([writer.close()], commit_of(2))

    first, second = spark.sql(f"SELECT * FROM {name(table)} ORDER BY __offset").collect()
    assert list(first)[: len(values)] == [wanted[0] for _, wanted in values.values()]
    assert list(second)[: len(values)] == [None] * len(values)
    assert (first["__bucket"], first["__offset"]) == (0, 10)
    # A TIMESTAMP_LTZ arrives in Python in the local time of this process.
    assert first["__timestamp"].astimezone(dt.UTC).timestamp() == 1.5


def test_files_carry_the_bounds_that_readers_prune_by(spark, catalogs, keyed):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {5: "b", 9: None}), piece(lake, {9: "c"}, delete=True)], commit_of(3))

    files = spark.sql(
        f"SELECT content, record_count, equality_ids, readable_metrics.k AS k, readable_metrics.v AS v "
        f"FROM {name(keyed)}.all_files ORDER BY content, record_count DESC"
    ).collect()

    first, _, deletes = files
    assert (first.content, first.record_count, first.equality_ids) == (0, 2, None)
    assert (first.k.lower_bound, first.k.upper_bound, first.k.null_value_count) == (5, 9, 0)
    assert (first.v.lower_bound, first.v.null_value_count) == ("b", 1)
    assert (deletes.content, deletes.record_count, deletes.equality_ids) == (2, 1, [1])
    assert (deletes.k.lower_bound, deletes.k.upper_bound) == (9, 9)


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


def test_a_file_at_its_target_size_is_followed_by_another(spark, catalogs, log):
    lake = catalogs.open_table(log)
    spark.sql(f"ALTER TABLE {name(log)} SET TBLPROPERTIES ('write.target-file-size-bytes'='1')")
    lake = catalogs.open_table(log)
    writer = lake.file_writer().open_piece(1, lake.piece_location(1, "p"), 4)
    batch = pa.RecordBatch.from_pydict({"k": [1] * 2**20, "v": ["x"] * 2**20}, schema=arrow_schema(COLUMNS))
    stamps = np.arange(2**20)
    for _ in range(2):
        writer.write(batch, stamps, stamps)

    files = writer.close()

    assert [Path(file.location).name for file in files] == ["p-4-00000.parquet", "p-4-00001.parquet"]
    lake.commit([files], commit_of(2))
    assert spark.sql(f"SELECT count(*) AS n FROM {name(log)} WHERE __bucket = 1").first().n == 2**21


def test_an_aborted_piece_leaves_no_file(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    location = lake.piece_location(0, "aborted")
    writer = lake.file_writer().open_piece(0, location, 0)
    batch = pa.RecordBatch.from_pydict({"k": [1], "v": ["x"]}, schema=arrow_schema(COLUMNS))
    writer.write(batch, np.array([0]), np.array([0]))
    writer.delete(batch.select(["k"]))
    written = writer.close()
    assert all(exists(file) for file in written)

    writer.abort()

    assert not any(exists(file) for file in written)
