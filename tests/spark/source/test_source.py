"""`spark.read.format("fluss")`: log tables and primary-key tables as they are now."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import EqualTo
from source_support import (
    columns,
    columns_read,
    create,
    filters_in_spark,
    load,
    partition_count,
    scanned_rows,
    with_catalog,
    write,
)
from spark_support import Tiering

from fluss_tiering.client import TieringClient
from pyspark_fluss import DefaultSource

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
    # Spark keeps the filters and partitions of a scan for the next one of its provider: here each has one of its own.
    assert tiering.spark.table("rows_now").count() == 20
    assert frame.where("id < 3").unionAll(frame).count() == 23


@pytest.fixture(scope="module")
def filtered(lake_target, spark):
    """Return a table with a row whose name is null and whose ratio is NaN, and a reader of the rows that match."""
    with TieringClient(lake_target) as client:
        tiering = Tiering(client, spark, lake_target)
        of_columns = columns(
            id="BIGINT NOT NULL",
            name="STRING",
            ratio="DOUBLE",
            price="DECIMAL(10, 2)",
            day="DATE",
            seen="TIMESTAMP_LTZ(3)",
            local="TIMESTAMP(6)",
            flag="BOOLEAN",
        )
        rows = [
            (n, f"name {n}", float(n), Decimal(n) + Decimal("0.50"), n, n * 1000, n * 1_000_000, n % 2 == 0)
            for n in range(11)
        ]
        rows[10] = (10, None, float("nan"), *rows[10][3:7], False)
        table = create(tiering, of_columns, rows)
        with_catalog(tiering)
        yield lambda condition: spark.sql(f"SELECT * FROM fluss_catalog.{table.path} WHERE {condition}")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id IN (2, 3, 7, 8, 99) AND name LIKE 'name%' AND name NOT IN ('name 2', 'x')", [3, 7, 8]),
        (
            """ratio > 1.5 AND price >= 3.50 AND price < 9.50 AND day <= DATE '1970-01-09' AND id <> 5 AND flag = true
            AND seen > TIMESTAMP '1970-01-01 00:00:03' AND local < TIMESTAMP_NTZ '1970-01-01 00:00:08'""",
            [4, 6],
        ),
        ("name IS NULL AND name <=> NULL AND ratio > 1e9", [10]),
    ],
)
def test_filters_are_applied_before_rows_reach_spark(filtered, condition, expected):
    frame = filtered(condition)
    assert [row.id for row in frame.collect()] == expected
    # The rows that leave the reader are already those of the answer.
    assert scanned_rows(frame) == len(expected)
    assert not filters_in_spark(frame)


def test_what_cannot_be_pushed_is_left_to_spark(filtered):
    frame = filtered("id > 2 AND (id = 3 OR name = 'name 5' OR id = 1)")
    assert [row.id for row in frame.collect()] == [3, 5]
    assert scanned_rows(frame) == 8
    assert filters_in_spark(frame)


@pytest.mark.parametrize("key", [None, "id"], ids=["log table", "primary-key table"])
def test_only_the_bucket_that_may_hold_a_key_is_read(tiering: Tiering, key):
    table = create(tiering, NAMED, named(range(40)), key=key, bucket_key="id", num_buckets=4)
    one = load(tiering, table).where("id = 13")
    assert [row.name for row in one.collect()] == ["name 13"]
    assert partition_count(one) == 1


def test_no_bucket_is_read_for_two_keys_at_once(tiering: Tiering):
    table = create(tiering, NAMED, named(range(40)), key="id", num_buckets=4)
    # Spark would fold `id = 1 AND id = 2` by itself.
    assert load(tiering, table).where("id IN (1, 2) AND id IN (3, 4)").collect() == []


def test_a_query_without_filters_reads_only_the_columns_that_it_needs(filtered):
    frame = filtered("true").select("flag", "id")
    assert [tuple(row) for row in frame.collect()] == [
        (number % 2 == 0 and number < 10, number) for number in range(11)
    ]
    assert columns_read(frame) == ["id", "flag"]
    assert filtered("true").count() == 11


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


def test_without_the_classes_for_the_jvm_the_python_source_takes_no_filters(tiering: Tiering):
    """Check a session that has `pyspark_fluss` but not the jar: Spark would keep the filters for other scans."""
    table = create(tiering, NAMED, named(range(10)))
    source = DefaultSource({"server": tiering.target, "table": str(table.path)})
    reader = source.reader(source.schema())
    assert reader.pushFilters([EqualTo(("id",), 1)]) == [EqualTo(("id",), 1)]
    assert sum(rows.num_rows for part in reader.partitions() for rows in reader.read(part)) == 10
