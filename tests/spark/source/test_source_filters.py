"""Filters on Arrow batches have Spark's semantics, and a scan only reads the buckets that it needs."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from engine_support import descriptor
from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import BucketInfo, Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath
from fluss_tiering.spark.source.options import SourceOptions
from fluss_tiering.spark.source.plan import buckets_holding, log_partitions
from fluss_tiering.spark.source.rows import can_evaluate, matching

NAN = float("nan")
ROWS = pa.record_batch(
    {
        "n": pa.array([1, 2, None, 3]),
        "x": pa.array([1.0, NAN, None, -0.0]),
        "s": pa.array(["ab", "b", None, ""]),
        "p": pa.array([Decimal("1.50"), Decimal("2.00"), None, Decimal("-1.00")], pa.decimal128(10, 2)),
        "t": pa.array([0, 1_000_000, None, 2_000_000], pa.timestamp("us", "UTC")),
    }
)
N, X, S, P, T = (("n",), ("x",), ("s",), ("p",), ("t",))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (EqualTo(N, 2), [1]),
        (Not(EqualTo(N, 2)), [0, 3]),
        (EqualNullSafe(N, 2), [1]),
        (Not(EqualNullSafe(N, 2)), [0, 2, 3]),
        (EqualNullSafe(N, None), [2]),
        (Not(EqualNullSafe(N, None)), [0, 1, 3]),
        (IsNull(N), [2]),
        (Not(IsNull(N)), [0, 1, 3]),
        (IsNotNull(N), [0, 1, 3]),
        (GreaterThan(N, 1), [1, 3]),
        (GreaterThanOrEqual(N, 2), [1, 3]),
        (LessThan(N, 2), [0]),
        (LessThanOrEqual(N, 2), [0, 1]),
        (In(N, (1, 3)), [0, 3]),
        (Not(In(N, (1, 3))), [1]),
        (In(N, (1, None)), [0]),
        (Not(In(N, (1, None))), []),
        (In(N, ()), []),
        # NaN is above every other number.
        (GreaterThan(X, 0.5), [0, 1]),
        (GreaterThanOrEqual(X, 1.0), [0, 1]),
        (LessThan(X, 0.5), [3]),
        (Not(GreaterThan(X, 0.5)), [3]),
        (EqualTo(X, 0.0), [3]),
        (StringStartsWith(S, "a"), [0]),
        (StringEndsWith(S, "b"), [0, 1]),
        (StringContains(S, ""), [0, 1, 3]),
        (Not(StringContains(S, "a")), [1, 3]),
        (GreaterThan(S, "a"), [0, 1]),
        (EqualTo(P, Decimal("1.5")), [0]),
        (LessThan(P, Decimal("2.00")), [0, 3]),
        (GreaterThan(T, datetime(1970, 1, 1, tzinfo=UTC)), [1, 3]),
    ],
    ids=repr,
)
def test_rows_match_as_in_spark(condition: Filter, expected):
    numbered = ROWS.append_column("row", pa.array(range(4)))
    assert can_evaluate(condition, ROWS.schema)
    assert matching(numbered, [condition]).column("row").to_pylist() == expected


def test_all_of_several_filters_must_hold():
    assert matching(ROWS, [IsNotNull(S), GreaterThan(N, 1)]).column("n").to_pylist() == [2, 3]
    assert matching(ROWS, []) is ROWS


def test_a_decimal_that_spark_may_have_rounded_is_left_to_it():
    schema = pa.schema([("p", pa.decimal128(38, 10))])
    exact, rounded = Decimal("12345678901234567.1234567891"), Decimal("123456789012345678.1234567891")

    assert can_evaluate(GreaterThan(P, exact), schema)
    assert not can_evaluate(GreaterThan(P, rounded), schema)
    assert not can_evaluate(In(P, (exact, rounded)), schema)


class OtherFilter(Filter):
    pass


@pytest.mark.parametrize(
    "condition",
    [
        *(EqualTo(X, NAN), In(X, (1.0,)), EqualTo(N, None), EqualTo(("unknown",), 1), EqualTo(("n", "inner"), 1)),
        *(EqualTo(P, Decimal("1.555")), EqualTo(N, 2**70), IsNull(("unknown",)), Not(EqualTo(X, NAN)), OtherFilter()),
    ],
    ids=repr,
)
def test_what_would_be_otherwise_in_spark_is_left_to_it(condition: Filter):
    assert not can_evaluate(condition, ROWS.schema)


def table(kind: str) -> TableInfo:
    of_columns = (Column("key", DataType.parse(kind)), Column("name", DataType.parse("STRING")))
    return TableInfo(1, TablePath("db", "t"), 1, TableDescriptor(of_columns, (), ("key",), 8), 0)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("BIGINT", 42, pa.array([42])),
        ("STRING", "größer", pa.array(["größer"])),
        ("DECIMAL(10, 2)", Decimal("1.5"), pa.array([Decimal("1.50")], pa.decimal128(10, 2))),
        ("TIMESTAMP(3)", datetime.fromisoformat("1969-12-31T23:59:59.999"), pa.array([-1], pa.timestamp("ms"))),
        ("TIMESTAMP(6)", datetime.fromisoformat("1970-01-01T00:00:01"), pa.array([1_000_000], pa.timestamp("us"))),
    ],
)
def test_a_key_leads_to_the_bucket_that_its_row_was_written_to(kind, value, stored):
    (bucket,) = assign_buckets(stored, DataType.parse(kind), 8)
    for condition in (EqualTo(("key",), value), EqualNullSafe(("key",), value), In(("key",), (value, None))):
        assert buckets_holding(table(kind), [IsNotNull(("key",)), condition], 8) == {bucket}


def test_several_keys_lead_to_several_buckets_and_other_filters_to_all():
    info = table("BIGINT")
    expected = set(assign_buckets(pa.array([1, 2, 3]), DataType.parse("BIGINT"), 8).tolist())
    assert buckets_holding(info, [In(("key",), (1, 2, 3))], 8) == expected
    assert buckets_holding(info, [EqualTo(("name",), "x"), GreaterThan(("key",), 1)], 8) is None
    assert buckets_holding(info, [Not(EqualTo(("key",), 1))], 8) is None
    assert buckets_holding(info, [], 8) is None
    elsewhere = next(key for key in range(2, 100) if _bucket(key) != _bucket(1))
    assert buckets_holding(info, [EqualTo(("key",), 1), EqualTo(("key",), elsewhere)], 8) == set()
    # A time between two that the column can hold.
    between = datetime.fromisoformat("1970-01-01T00:00:00.000001")
    assert buckets_holding(table("TIMESTAMP(3)"), [EqualTo(("key",), between)], 8) == set(range(8))


def _bucket(key: int) -> int:
    return int(assign_buckets(pa.array([key]), DataType.parse("BIGINT"), 8)[0])


def test_tables_without_a_bucket_key_or_with_one_bucket_are_read_whole():
    without = TableInfo(1, TablePath("db", "t"), 1, descriptor(primary_key=False, num_buckets=4), 0)
    assert buckets_holding(without, [EqualTo(("id",), 1)], 8) is None
    assert buckets_holding(table("BIGINT"), [EqualTo(("key",), 1)], 1) is None


@pytest.mark.parametrize(
    ("start", "end", "size", "expected"),
    [
        (0, 0, 0, [(0, 0)]),
        (5, 5, 100, [(5, 5)]),
        (5, 25, 100, [(5, 25)]),
        (5, 25, 101, [(5, 15), (15, 25)]),
        (0, 2, 1000, [(0, 1), (1, 2)]),
    ],
)
def test_a_log_is_cut_into_parts_of_like_length(start, end, size, expected):
    bucket = TableBucket(1, 0)
    parts = log_partitions([BucketInfo(bucket, start, end, size)], max_bytes=100)
    assert [(part.start_offset, part.end_offset) for part in parts] == expected
    assert {part.bucket for part in parts} == {bucket}


def test_options_may_be_written_in_any_case_and_have_defaults():
    options = SourceOptions.read({"TABLE": "db.t", "maxpartitionbytes": "7 kb"}, {"FLUSS_TIERING_SERVER": "there:1"})
    assert (options.table, options.max_partition_bytes, options.server) == ("db.t", 7 << 10, "there:1")
    assert SourceOptions.read({"table": "db.t"}, {}).server == "127.0.0.1:9133"
    assert not options.accepts_filters


@pytest.mark.parametrize(
    "options", [{}, {"table": ""}, {"table": "t", "maxPartitionBytes": "0"}, {"table": "t", "maxPartitionBytes": "1xb"}]
)
def test_wrong_options_are_refused(options):
    with pytest.raises(FlussTieringError, match='option "'):
        SourceOptions.read(options, {})
