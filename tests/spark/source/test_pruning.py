"""Spark's filters as conditions on the statistics of log batches, and as what leaders of a cluster are sent."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import datasource as ds

from fluss_tiering.formats.log.conditions import Condition, InRanges, Nullness, Range
from fluss_tiering.model.table import Column, DataType
from fluss_tiering.spark.source.pruning import conditions_of
from fluss_tiering.storage.fluss.rpc.calls.log_filter import log_filter

MICRO, MILLI, SECOND = 1_000, 1_000_000, 1_000_000_000
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of a TIMESTAMP without a zone
WIDE = "DECIMAL(38, 3)"


def conditions(data_type: str, *filters: Any) -> tuple[Condition, ...]:
    return conditions_of(filters, [Column("c", DataType.parse(data_type))])


@pytest.mark.parametrize(
    ("data_type", "condition", "expected"),
    [
        ("INT", ds.EqualTo(("c",), 5), Range(5, 5)),
        ("INT", ds.EqualNullSafe(("c",), 5), Range(5, 5)),
        ("BIGINT", ds.GreaterThan(("c",), 5), Range(5, None, without_low=True)),
        ("BIGINT", ds.GreaterThanOrEqual(("c",), 5), Range(5, None)),
        ("BIGINT", ds.LessThan(("c",), 5), Range(None, 5, without_high=True)),
        ("BIGINT", ds.LessThanOrEqual(("c",), 5), Range(None, 5)),
        ("BOOLEAN", ds.EqualTo(("c",), True), Range(1, 1)),
        ("DOUBLE", ds.LessThan(("c",), -0.0), Range(None, -0.0, without_high=True)),
        ("STRING", ds.EqualTo(("c",), "é"), Range("é".encode(), "é".encode())),
        ("STRING", ds.StringStartsWith(("c",), "ab"), Range(b"ab", b"ac", without_high=True)),
        ("STRING", ds.StringStartsWith(("c",), ""), Range(b"", None, without_high=True)),
        ("STRING", ds.StringStartsWith(("c",), "a\U0010ffff"), Range("a\U0010ffff".encode(), b"b", without_high=True)),
        # There are no characters between these two.
        (
            "STRING",
            ds.StringStartsWith(("c",), "\ud7ff"),
            Range("\ud7ff".encode(), "\ue000".encode(), without_high=True),
        ),
        ("DATE", ds.EqualTo(("c",), dt.date(1969, 12, 31)), Range(-1, -1)),
        ("DECIMAL(10, 2)", ds.EqualTo(("c",), Decimal("-1.5")), Range(-150, -150)),
        # It has more digits than Python's arithmetic of decimals keeps.
        (WIDE, ds.LessThanOrEqual(("c",), Decimal("9" * 27)), Range(None, int("9" * 27 + "000"))),
        # Statistics have what was written, and the column has whole units of it.
        ("TIMESTAMP(0)", ds.EqualTo(("c",), EPOCH), Range(-SECOND, SECOND)),
        ("TIMESTAMP(3)", ds.GreaterThan(("c",), EPOCH), Range(-MILLI, None)),
        ("TIMESTAMP(6)", ds.LessThan(("c",), EPOCH), Range(None, MICRO)),
        ("TIMESTAMP(9)", ds.LessThan(("c",), EPOCH), Range(None, MICRO)),
        ("TIMESTAMP_LTZ(6)", ds.EqualTo(("c",), EPOCH.replace(tzinfo=dt.UTC)), Range(-MICRO, MICRO)),
    ],
)
def test_a_comparison_is_a_range(data_type: str, condition: Any, expected: Range) -> None:
    assert conditions(data_type, condition) == (InRanges("c", (expected,)),)


def test_values_of_in_are_points_if_there_are_few() -> None:
    assert conditions("INT", ds.In(("c",), (3, None, 1))) == (InRanges("c", (Range(3, 3), Range(1, 1))),)
    assert conditions("INT", ds.In(("c",), (None,))) == (InRanges("c", ()),)
    assert conditions("INT", ds.In(("c",), tuple(range(500, 0, -1)))) == (InRanges("c", (Range(1, 500),)),)


def test_nulls_are_asked_for_of_each_type_with_statistics() -> None:
    for data_type in ("INT", "TIME(3)", "FLOAT"):
        assert conditions(data_type, ds.IsNull(("c",))) == (Nullness("c", is_null=True),)
        assert conditions(data_type, ds.IsNotNull(("c",))) == (Nullness("c", is_null=False),)
        assert conditions(data_type, ds.Not(ds.IsNull(("c",)))) == (Nullness("c", is_null=False),)
        assert conditions(data_type, ds.Not(ds.IsNotNull(("c",)))) == (Nullness("c", is_null=True),)
        assert conditions(data_type, ds.EqualNullSafe(("c",), None)) == (Nullness("c", is_null=True),)
    assert conditions("BYTES", ds.IsNull(("c",))) == ()


def test_other_filters_have_no_condition() -> None:
    assert conditions("INT", ds.Not(ds.EqualTo(("c",), 5))) == ()
    assert conditions("STRING", ds.StringEndsWith(("c",), "a"), ds.StringContains(("c",), "a")) == ()
    assert conditions("CHAR(3)", ds.EqualTo(("c",), "a"), ds.StringStartsWith(("c",), "a")) == ()
    assert conditions("TIME(3)", ds.EqualTo(("c",), dt.time(1))) == ()
    assert conditions("BYTES", ds.EqualTo(("c",), b"a")) == ()


def sent(data_type: str, *wanted: Condition) -> str | None:
    """What leaders are sent, as text without layout."""
    found = log_filter(wanted, [Column("c", DataType.parse(data_type))], {"c": 7}, 2)
    assert found is None or found.schema_id == 2
    return None if found is None else " ".join(str(found.predicate).split())


def test_leaders_get_the_field_id_and_values_of_the_type() -> None:
    leaf = "type: 0 leaf {{ function: {} field_id: 7 literals {{ literal_type: {} is_null: false {} }} }}"
    for data_type, value, expected in (
        ("TINYINT", 5, leaf.format(0, 1, "int_value: 5")),
        ("BOOLEAN", 1, leaf.format(0, 0, "boolean_value: true")),
        ("BIGINT", -5, leaf.format(0, 4, "bigint_value: -5")),
        ("DATE", 5, leaf.format(0, 10, "bigint_value: 5")),
        ("STRING", b"", leaf.format(0, 8, 'string_value: ""')),
        ("DECIMAL(18, 2)", -5, leaf.format(0, 9, "decimal_value: -5")),
        ("DECIMAL(19, 2)", 128, leaf.format(0, 9, 'decimal_bytes: "\\000\\200"')),
        ("DECIMAL(38, 0)", -129, leaf.format(0, 9, 'decimal_bytes: "\\377\\177"')),
        (
            "TIMESTAMP(6)",
            -1,
            leaf.format(0, 12, "timestamp_millis_value: -1 timestamp_nano_of_millis_value: 999999"),
        ),
    ):
        assert sent(data_type, InRanges("c", (Range(value, value),))) == expected  # type: ignore[arg-type]
    assert sent("INT", InRanges("c", (Range(None, 5, without_high=True),))) == leaf.format(2, 3, "int_value: 5")
    assert sent("INT", Nullness("c", is_null=True)) == "type: 0 leaf { function: 6 field_id: 7 }"
    several = sent("INT", InRanges("c", (Range(1, 2), Range(5, 5))))
    assert several is not None
    assert several.startswith("type: 1 compound { function: 1 children { type: 1 compound { function: 0 ")
    points = sent("INT", InRanges("c", (Range(1, 1), Range(5, 5))))
    assert points is not None
    assert points.startswith("type: 0 leaf { function: 11 ")


def test_leaders_are_not_asked_what_they_cannot_know() -> None:
    """Not all writers order NaN as leaders do."""
    for data_type in ("FLOAT", "DOUBLE"):
        assert sent(data_type, InRanges("c", (Range(1.0, 1.0),))) is None
        assert sent(data_type, Nullness("c", is_null=False)) == "type: 0 leaf { function: 7 field_id: 7 }"
    column = [Column("c", DataType.parse("INT"))]
    assert log_filter([InRanges("c", (Range(1, 1),))], column, {}, 2) is None
    assert log_filter([], column, {"c": 7}, 2) is None
