"""Times and timestamps with nanoseconds, as the lake holds them."""

from __future__ import annotations

import pyarrow as pa

from cases import cases
from fluss_tiering.formats.micros import as_type, lake_type, micros_type
from fluss_tiering.formats.schema import arrow_type
from fluss_tiering.model.data_type import DataType

DAY_NS = 86_400 * 10**9


@cases("kind", ["TIME(7)", "TIME(9)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(7)"])
def test_nanoseconds_are_rounded_down_in_the_lake(kind: str) -> None:
    data_type = DataType.parse(kind)
    given = pa.array([0, 999, 1_000, 1_001, None, DAY_NS - 1], pa.int64()).cast(arrow_type(data_type))

    made = as_type(given, lake_type(data_type))

    assert made.type == lake_type(data_type)
    assert made.view(pa.int64()).to_pylist() == [0, 0, 1, 1, None, DAY_NS // 1000 - 1]
    assert made.null_count == 1


def test_nanoseconds_of_a_nested_time_are_rounded_down_in_the_lake() -> None:
    data_type = DataType.parse("ROW<a ARRAY<TIME(9)>, m MAP<INT, TIME(8)>>")
    given = pa.array([{"a": [1_999, None], "m": [(1, 2_001)]}, None], arrow_type(data_type))

    made = as_type(given, lake_type(data_type))

    assert made.equals(pa.array([{"a": [1, None], "m": [(1, 2)]}, None], lake_type(data_type)))


def test_nanoseconds_of_a_time_stay_in_spark() -> None:
    data_type = DataType.parse("TIME(9)")
    given = pa.array([1_999], arrow_type(data_type))
    assert as_type(given, micros_type(data_type)).equals(given)
