"""Columns as the lake and Spark hold them: nested ones, times with nanoseconds, and a part of them."""

import pyarrow as pa
import pytest
from row_of_all_types import table_columns

from cases import cases
from fluss_tiering.formats.micros import as_type, lake_type, micros_type
from fluss_tiering.formats.schema import Projection, arrow_schema, arrow_type, no_columns
from fluss_tiering.model.data_type import DataType
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, TablePath

NESTED = DataType.parse("ROW<r ROW<x INT NOT NULL>, t TIMESTAMP(9), l ARRAY<SMALLINT>, m MAP<TIME(3), TIMESTAMP(9)>>")


def nested() -> pa.StructArray:
    """Return three rows: a null, one whose inner row is null, and one with all values."""
    row, time, numbers, times = arrow_type(NESTED)
    inner = pa.StructArray.from_arrays(
        # In log batches of Fluss there is nothing under a null.
        [pa.array([None, None, 7], pa.int32())],
        fields=list(row.type),
        mask=pa.array([True, True, False]),
    )
    parts = [
        inner,
        pa.array([None, -1, 1_999], time.type),
        pa.array([None, [1, None], []], numbers.type),
        pa.array([None, [(1, -1), (2, None)], [(3, -1_000)]], times.type),
    ]
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(NESTED)), mask=pa.array([True, False, False]))


@cases(("kind", "per_millisecond"), [(lake_type(NESTED), 1_000), (micros_type(NESTED), 1_000_000)])
@cases("start", [0, 1])
def test_parts_are_converted_as_columns_are(kind: pa.DataType, per_millisecond: int, start: int) -> None:
    made = as_type(nested().slice(start), kind)
    made.validate(full=True)
    assert made.type == kind
    rows = [
        None,
        # The nanosecond before the epoch is in the microsecond before it.
        {"r": None, "t": -1, "l": [1, None], "m": [(per_millisecond, -1), (2 * per_millisecond, None)]},
        {"r": {"x": 7}, "t": 1, "l": [], "m": [(3 * per_millisecond, -1)]},
    ]
    assert made.equals(pa.array(rows[start:], kind))


def test_lists_in_other_layouts_keep_their_elements() -> None:
    wanted = pa.list_(pa.struct([pa.field("x", pa.int64(), nullable=False)]))
    values = [[{"x": 1}, {"x": 2}], None, [{"x": 3}, None]]
    element = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    for kind in (pa.list_(element), pa.large_list(element), pa.list_(element, 2)):
        made = as_type(pa.array(values, kind).slice(1), wanted)
        assert (made.type, made.to_pylist()) == (wanted, values[1:])


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


COLUMNS = table_columns("INT NOT NULL", "STRING", "ARRAY<INT>")
TABLE = TableInfo(1, TablePath("shop", "orders"), 1, TableDescriptor(COLUMNS), 0)
ROWS = pa.record_batch([[1, 2], ["a", None], [[1], []]], schema=arrow_schema(COLUMNS))


@cases(
    ("names", "included"),
    [
        (None, None),
        (["c0", "c1", "c2"], None),
        (["c2", "c0", "c1"], None),
        (["c2", "c0"], (0, 2)),
        (["c1"], (1,)),
        ([], ()),
    ],
)
def test_columns_are_had_in_the_order_that_they_are_asked_for(
    names: list[str] | None, included: tuple[int, ...] | None
) -> None:
    projection = Projection.of(TABLE, names)
    assert projection.included == included
    read = ROWS if included is None else ROWS.select(list(included))
    arranged = projection.arrange(read)
    assert arranged.equals(ROWS if names is None else ROWS.select(names))
    assert arranged.schema == projection.schema
    assert arranged.num_rows == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["c0", "C1"], "table shop.orders has no column 'C1': expected some of c0, c1, c2"),
        (["c0", "c1", "c0"], "column 'c0' of table shop.orders is asked for twice: expected it once"),
    ],
)
def test_columns_that_are_not_there_once_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(FlussTieringError) as caught:
        Projection.of(TABLE, names)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)


def test_rows_without_columns_are_counted() -> None:
    assert [(part.num_rows, part.num_columns) for part in (no_columns(5), no_columns(5).slice(1, 3))] == [
        (5, 0),
        (3, 0),
    ]
