"""`spark.read.format("fluss")`: log tables and primary-key tables as they are now."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest
from pyspark.errors import AnalysisException
from source_support import (
    columns,
    columns_read,
    create,
    load,
    partition_count,
    with_catalog,
    write,
)
from spark_support import Tiering

ALL_TYPES = {
    "id": "BIGINT NOT NULL",
    "flag": "BOOLEAN",
    "number": "INT",
    "ratio": "DOUBLE",
    "price": "DECIMAL(10, 2)",
    "huge": "DECIMAL(38, 10)",
    "text": "STRING",
    "day": "DATE",
    "t0": "TIMESTAMP(0)",
    "t3": "TIMESTAMP(3)",
    "t6": "TIMESTAMP(6)",
    "t9": "TIMESTAMP(9)",
    "z3": "TIMESTAMP_LTZ(3)",
    "z9": "TIMESTAMP_LTZ(9)",
}
SPARK_TYPES = [
    *("bigint", "boolean", "int", "double", "decimal(10,2)", "decimal(38,10)", "string", "date"),
    *("timestamp_ntz" for _ in range(4)),
    *("timestamp" for _ in range(2)),
]
time = datetime.fromisoformat
FULL = (
    *(1, True, -(2**31), -0.5, Decimal("-12345678.90"), Decimal("1234567890123456789012345678.0123456789")),
    *("größer", date(1582, 10, 15), time("2026-01-02T03:04:05"), time("1969-12-31T23:59:59.999")),
    *(time("9999-12-31T23:59:59.999999"), -1, time("1900-01-01T00:00:00"), 1_001),
)
IN_SPARK = (
    *FULL[:11],
    # Nanoseconds are floored to Spark's microseconds, as they are for the lake.
    time("1969-12-31T23:59:59.999999"),
    time("1900-01-01T00:00:00Z"),
    time("1970-01-01T00:00:00.000001Z"),
)
EMPTY = (2, *(None for _ in range(13)))

NAMED = columns(id="BIGINT NOT NULL", name="STRING")


def named(numbers: range) -> list[tuple[int, str]]:
    return [(number, f"name {number}") for number in numbers]


@pytest.mark.parametrize("key", [None, "id"], ids=["log table", "primary-key table"])
@pytest.mark.sampled(1)
def test_every_type_arrives_as_it_was_written(tiering: Tiering, key):
    table = create(tiering, columns(**ALL_TYPES), [FULL, EMPTY], key=key)

    frame = load(tiering, table)

    assert [name for _, name in frame.dtypes] == SPARK_TYPES
    assert [field.nullable for field in frame.schema.fields] == [False, *(True for _ in range(13))]
    read = frame.orderBy("id").toArrow().to_pylist()
    assert [tuple(row.values()) for row in read] == [IN_SPARK, EMPTY]


@pytest.mark.parametrize("key", [None, "id"], ids=["log table", "primary-key table"])
def test_a_table_without_rows_is_empty(tiering: Tiering, key):
    assert load(tiering, create(tiering, NAMED, key=key, num_buckets=2)).collect() == []


def test_a_primary_key_table_shows_what_lives_now(tiering: Tiering):
    table = create(tiering, NAMED, named(range(100)), key="id", num_buckets=3)
    write(tiering, table, [(5, "changed")])
    tiering.delete(table, range(50, 100))

    frame = load(tiering, table)

    assert {row.id: row.name for row in frame.collect()} == {**dict(named(range(50))), 5: "changed"}
    assert partition_count(frame) == 3


def test_a_bucket_is_a_partition_and_a_long_log_is_several(tiering: Tiering):
    table = create(tiering, NAMED, num_buckets=4)
    for start in range(0, 40, 10):
        write(tiering, table, named(range(start, start + 10)))
    size = max(info.log_size_bytes for info in tiering.client.list_buckets([table.path])[table.path])

    assert partition_count(load(tiering, table)) == 4
    cut = load(tiering, table, maxPartitionBytes=str(size // 2 + 1))
    assert sorted(row.id for row in cut.collect()) == list(range(40))
    assert partition_count(cut) == 8


def test_each_query_reads_the_rows_of_the_time_it_was_planned(tiering: Tiering):
    table = create(tiering, NAMED, named(range(10)))
    frame = load(tiering, table)
    options = f"server '{tiering.target}', table '{table.path}'"
    tiering.spark.sql(f"CREATE TEMPORARY VIEW rows_now USING fluss OPTIONS ({options})")
    high = frame.where("id >= 5")
    assert partition_count(high) == 1
    assert tiering.spark.table("rows_now").where("id >= 5").count() == 5

    write(tiering, table, named(range(10, 20)))

    # It was planned before the write.
    assert len(high.collect()) == 5
    # Spark keeps the partitions of a scan for the next one of its provider: here each has one of its own.
    assert tiering.spark.table("rows_now").count() == 20
    assert frame.where("id < 3").unionAll(frame).count() == 23


@pytest.mark.parametrize("condition", ["true", "id > 2 AND (id = 3 OR name = 'name 5')"])
def test_a_query_reads_only_the_columns_that_it_needs(tiering: Tiering, condition: str):
    table = create(
        tiering, columns(id="BIGINT NOT NULL", name="STRING", flag="BOOLEAN"), [(3, "a", True), (5, "b", None)]
    )
    with_catalog(tiering)
    frame = tiering.spark.sql(f"SELECT flag, id FROM fluss_catalog.{table.path} WHERE {condition}")
    assert [tuple(row) for row in frame.collect()][:1] == [(True, 3)]
    assert columns_read(frame) == (["id", "flag"] if condition == "true" else ["id", "name", "flag"])
    assert frame.count() == (2 if condition == "true" else 1)


def test_a_schema_of_some_columns_reads_no_others(tiering: Tiering):
    table = create(tiering, columns(**ALL_TYPES), [FULL, EMPTY], key="id")
    reader = tiering.spark.read.format("fluss").option("server", tiering.target).option("table", str(table.path))

    frame = reader.schema("text STRING, id BIGINT").load()

    assert sorted(map(tuple, frame.collect()), key=lambda row: row[1]) == [("größer", 1), (None, 2)]
    for wrong, words in (("nope STRING", "has no column 'nope'"), ("id STRING", "cannot be read as string")):
        with pytest.raises(AnalysisException, match=words):
            reader.schema(wrong).load().collect()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, '[INVALID_REQUEST] option "table" is missing'),
        ({"table": "nowhere"}, "[INVALID_TABLE] 'nowhere' is not a table path"),
        ({"table": "db.nowhere"}, "[TABLE_NOT_EXIST] table db.nowhere does not exist"),
        ({"table": "db.nowhere", "server": "here"}, "[INVALID_REQUEST] the tiering server's address is 'here'"),
    ],
)
def test_errors_say_in_their_first_line_what_is_wrong(tiering: Tiering, options, words):
    with pytest.raises(AnalysisException) as caught:
        tiering.spark.read.format("fluss").options(**{"server": tiering.target, **options}).load()
    assert words in str(caught.value).splitlines()[0]
    assert "Traceback" not in str(caught.value)


def test_a_table_that_is_dropped_while_it_is_read_fails_the_query(tiering: Tiering):
    table = create(tiering, NAMED, named(range(10)))
    planned = load(tiering, table)
    assert partition_count(planned) == 1
    tiering.client.drop_table(table.path, drop_untiered=True)
    with pytest.raises(Exception, match=r"\[TABLE_NOT_EXIST\]"):
        planned.collect()
