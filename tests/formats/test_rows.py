import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from cases import cases
from fluss_tiering import formats
from fluss_tiering.formats.rows import conform
from fluss_tiering.formats.schema import arrow_schema, arrow_type
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType


def column(name: str, text: str) -> Column:
    return Column(name, DataType.parse(text))


COLUMNS = (column("id", "BIGINT NOT NULL"), column("name", "STRING"), column("price", "DECIMAL(10, 2)"))


def refused(rows: pa.Table, columns: tuple[Column, ...] = COLUMNS, key: tuple[str, ...] = ()) -> str:
    with pytest.raises(FlussTieringError) as caught:
        conform(rows, columns, key)
    assert caught.value.code is ErrorCode.INVALID_ROWS
    return caught.value.message


def test_rows_come_out_in_the_tables_schema_and_order() -> None:
    rows = pa.table({"price": pa.array([7, None]), "id": pa.array([1, 2], pa.int8()), "name": ["a", None]})
    table = conform(rows, COLUMNS)
    assert table.schema == arrow_schema(COLUMNS)
    assert table.to_pydict() == {"id": [1, 2], "name": ["a", None], "price": [Decimal("7.00"), None]}


def test_rows_that_fit_already_are_not_copied() -> None:
    rows = pa.table({"id": [1, 2]})
    table = conform(rows, COLUMNS[:1])
    assert table.column("id").chunk(0).buffers()[1].address == rows.column("id").chunk(0).buffers()[1].address


LONG = pa.array(["x" * 1000])
MILLION = 1_000_000


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.nulls(MILLION), "BIGINT"),
        (pa.nulls(MILLION), "DECIMAL(38, 0)"),
        (pa.nulls(MILLION), "ROW<a BIGINT, b BIGINT>"),
        (pa.DictionaryArray.from_arrays(pa.array(np.zeros(MILLION, np.int8)), LONG), "STRING"),
        (pa.DictionaryArray.from_arrays(pa.array(np.zeros(MILLION, np.int8)), LONG.cast(pa.binary())), "BYTES"),
        (pa.ListArray.from_arrays(pa.array([0, MILLION], pa.int32()), pa.nulls(MILLION)), "ARRAY<BIGINT>"),
        (
            pa.StructArray.from_arrays([pa.nulls(MILLION), pa.array(np.zeros(MILLION, np.int8))], ["a", "b"]),
            "ROW<a BIGINT, b INT>",
        ),
        (
            pa.MapArray.from_arrays(
                pa.array([0, MILLION], pa.int32()), pa.array(np.arange(MILLION), pa.int32()), pa.nulls(MILLION)
            ),
            "MAP<INT, BIGINT>",
        ),
        (pa.array(np.zeros(MILLION, np.int8)), "BIGINT"),
    ],
    ids=lambda value: str(value.type)[:30] if isinstance(value, pa.Array) else value[:6],
)
def test_rows_that_grow_in_the_types_of_the_table_are_refused_before(
    values: pa.Array, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (column("c", text),)
    rows = pa.table({"c": values})
    few = pa.table({"c": values.slice(0, 3)}) if len(values) > 1 else None
    before = pa.total_allocated_bytes()
    pa.default_memory_pool().release_unused()
    monkeypatch.setattr(formats.rows, "MAX_ROWS_BYTES", 4 * MILLION)
    monkeypatch.setattr(formats.rows, "_cast", None)
    assert "rows would take more than 4000000 bytes in the types of the table" in refused(rows, columns)
    assert pa.total_allocated_bytes() - before < 100_000
    monkeypatch.undo()
    assert few is None or conform(few, columns).num_rows == 3


def test_no_rows_are_rows_too() -> None:
    assert conform(arrow_schema(COLUMNS).empty_table(), COLUMNS).num_rows == 0


@cases(
    ("values", "text", "expected"),
    [
        (pa.array([1, None], pa.uint8()), "INT", [1, None]),
        (pa.array([2**31 - 1, -(2**31)], pa.int64()), "INT", [2**31 - 1, -(2**31)]),
        (pa.array([3.0, None], pa.float64()), "BIGINT", [3, None]),
        (pa.array([2**53], pa.int64()), "DOUBLE", [2.0**53]),
        (pa.array([1.5], pa.float32()), "DOUBLE", [1.5]),
        (pa.array([-128, None], pa.int64()), "TINYINT", [-128, None]),
        (pa.array([32767.0]), "SMALLINT", [32767]),
        (pa.array([2**24], pa.int64()), "FLOAT", [2.0**24]),
        (pa.array([1.5, None, float("inf")], pa.float64()), "FLOAT", [1.5, None, float("inf")]),
        (pa.array([12345678], pa.int32()), "DECIMAL(10, 2)", [Decimal("12345678.00")]),
        (pa.array([2**64 - 1], pa.uint64()), "DECIMAL(20, 0)", [Decimal(2**64 - 1)]),
        (pa.array([Decimal("1.230")]), "DECIMAL(10, 2)", [Decimal("1.23")]),
        (pa.array([Decimal("1.2")], pa.decimal256(50, 3)), "DECIMAL(38, 2)", [Decimal("1.20")]),
        (pa.array(["ä", None], pa.large_string()), "STRING", ["ä", None]),
        (pa.array(["x", "x", None]).dictionary_encode(), "STRING", ["x", "x", None]),
        (pa.nulls(2), "STRING", [None, None]),
        (pa.array(["äö", "", None], pa.large_string()), "CHAR(2)", ["äö", "", None]),
        (pa.array([b"ab", None], pa.large_binary()), "BINARY(2)", [b"ab", None]),
        (pa.array([b"ab", b""], pa.binary_view()), "BYTES", [b"ab", b""]),
        (pa.array([b"ab", None], pa.binary(2)), "BYTES", [b"ab", None]),
        (pa.nulls(1), "BINARY(2)", [None]),
        (pa.array([[1, None], None], pa.large_list(pa.int64())), "ARRAY<INT>", [[1, None], None]),
        (pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())), "MAP<STRING, INT>", [[("a", 1)], []]),
        (pa.array([{"a": 1}, None]), "ROW<a INT NOT NULL>", [{"a": 1}, None]),
        (pa.array([1_000], pa.time64("us")), "TIME(3)", [dt.time(0, 0, 0, 1_000)]),
        (pa.array([1], pa.time32("s")), "TIME(9)", [dt.time(0, 0, 1)]),
    ],
)
def test_casts_that_change_no_value_are_made(values: pa.Array, text: str, expected: list[object]) -> None:
    assert conform(pa.table({"c": values}), [column("c", text)]).column("c").to_pylist() == expected


@cases(
    ("values", "text", "expected"),
    [
        (pa.array([1], pa.timestamp("s")), "TIMESTAMP(6)", 1_000_000),
        (pa.array([5_000], pa.timestamp("ns")), "TIMESTAMP(6)", 5),
        (pa.array([1], pa.timestamp("us", "Europe/Berlin")), "TIMESTAMP_LTZ(6)", 1),
        (pa.array([-1], pa.timestamp("ms", "Asia/Tokyo")), "TIMESTAMP_LTZ(9)", -1_000_000),
        (pa.array([1], pa.timestamp("us")), "TIMESTAMP_LTZ(6)", 1),
        (pa.array([100], pa.timestamp("us")), "TIMESTAMP(4)", 100),
        (pa.array([86_400_000], pa.date64()), "DATE", 1),
    ],
)
def test_instants_and_days_stay_what_they_are(values: pa.Array, text: str, expected: int) -> None:
    cast = conform(pa.table({"c": values}), [column("c", text)]).column("c")
    assert cast.cast(pa.int32() if text == "DATE" else pa.int64()).to_pylist() == [expected]


@cases(
    ("values", "text"),
    [
        (pa.array([2**31]), "INT"),
        (pa.array([1.5]), "INT"),
        (pa.array([float("nan")]), "BIGINT"),
        (pa.array([2.0**63]), "BIGINT"),
        (pa.array([128]), "TINYINT"),
        (pa.array([-32769]), "SMALLINT"),
        (pa.array([2**24 + 1]), "FLOAT"),
        (pa.array([1.0, 0.1]), "FLOAT"),
        (pa.array([1e300]), "FLOAT"),
        (pa.array([b"ab", b"c"]), "BINARY(2)"),
        (pa.array([1_001], pa.time64("us")), "TIME(3)"),
        (pa.array([2**53 + 1]), "DOUBLE"),
        (pa.array([100_000_000]), "DECIMAL(10, 2)"),
        (pa.array([Decimal("1.235")]), "DECIMAL(10, 2)"),
        (pa.array([1_001], pa.timestamp("ns")), "TIMESTAMP(6)"),
        (pa.array([1], pa.timestamp("ns", "UTC")), "TIMESTAMP_LTZ(3)"),
        (pa.array([2**62], pa.timestamp("ms")), "TIMESTAMP(6)"),
    ],
)
def test_a_cast_that_would_change_a_value_is_refused(values: pa.Array, text: str) -> None:
    message = refused(pa.table({"c": values}), (column("c", text),))
    assert message.startswith(f"column 'c' is {values.type} with a value that {DataType.parse(text)} cannot hold: ")


@cases(
    ("values", "text"),
    [
        (pa.array(["1"]), "INT"),
        (pa.array([1]), "STRING"),
        (pa.array([b"x"]), "STRING"),
        (pa.array([b"x"]), "CHAR(1)"),
        (pa.array(["x"]), "BYTES"),
        (pa.array(["x"]), "BINARY(1)"),
        (pa.array([0], pa.date32()), "TIME"),
        (pa.array([0]), "TIME"),
        (pa.array([1]), "BOOLEAN"),
        (pa.array([True]), "INT"),
        (pa.array([0.1]), "DECIMAL(10, 2)"),
        (pa.array([Decimal(1)]), "BIGINT"),
        (pa.array([0], pa.timestamp("us")), "DATE"),
        (pa.array([0], pa.date32()), "TIMESTAMP"),
        (pa.array([0], pa.timestamp("us", "UTC")), "TIMESTAMP"),
        (pa.array([[1]]), "BIGINT"),
        (pa.array([1]), "ARRAY<INT>"),
        (pa.array([{"a": 1.0}]), "ROW<a FLOAT>"),
        (pa.array([{"a": 1, "b": 2}]), "ROW<a INT>"),
        (pa.array([["5"]]), "ARRAY<INT>"),
        (pa.array([[[(5, 1)]]], pa.list_(pa.map_(pa.int32(), pa.int32()))), "ARRAY<MAP<STRING, INT>>"),
        (pa.array([[None]], pa.list_(pa.decimal128(5, -2))), "ARRAY<DECIMAL(5, 2)>"),
    ],
)
def test_a_type_that_does_not_fit_is_named_with_what_was_expected(values: pa.Array, text: str) -> None:
    message = refused(pa.table({"c": values}), (column("c", text),))
    assert message.startswith(f"column 'c' is {values.type}: expected {DataType.parse(text)}")


@cases("scale", [-5, 11, -16777214])
@cases("in_dictionary", [False, True])
def test_a_decimal_with_a_senseless_scale_is_refused_before_it_is_cast(scale: int, in_dictionary: bool) -> None:
    values = pa.array([1], pa.int64()).cast(pa.decimal128(19, 0)).view(pa.decimal128(10, scale))
    if in_dictionary:
        values = pa.DictionaryArray.from_arrays(pa.array([0]), values)
    message = refused(pa.table({"c": values}), (column("c", "DECIMAL(10, 2)"),))
    assert message.startswith(f"column 'c' is decimal128(10, {scale}): expected a decimal with a scale from 0")


def test_more_sub_second_digits_than_the_precision_are_refused() -> None:
    message = refused(pa.table({"c": pa.array([10], pa.timestamp("us"))}), (column("c", "TIMESTAMP(4)"),))
    assert message == "column 'c' has a value with more than 4 sub-second digits: expected TIMESTAMP(4)"


@cases(
    ("values", "text", "message"),
    [
        ([10], "TIME(1)", "more than 1 sub-second digits: expected TIME(1)"),
        ([1_000_001], "TIME(9)", "more than 3 sub-second digits: expected TIME(9), of which Fluss keeps milliseconds"),
        (["äöü", "x"], "CHAR(2)", "has a text of 3 characters: expected CHAR(2)"),
        ([["ab"], ["abc"]], "ARRAY<CHAR(2)>", "column 'c.element' has a text of 3 characters: expected CHAR(2)"),
        (
            [[(10, 1)]],
            "MAP<TIME(1), INT>",
            "'c.key' has a value with more than 1 sub-second digits: expected TIME(1) NOT NULL",
        ),
        ([[{"a": "xyz"}]], "ARRAY<ROW<a CHAR(1)>>", "'c.element.a' has a text of 3 characters: expected CHAR(1)"),
    ],
)
def test_a_value_that_its_column_would_not_keep_is_refused(values: list[object], text: str, message: str) -> None:
    rows = pa.table({"c": pa.array(values, arrow_type(DataType.parse(text)))})
    assert refused(rows, (column("c", text),)).endswith(message)


def test_a_null_within_a_value_is_refused_where_it_must_not_be() -> None:
    fields = pa.array([None, {"a": None}], pa.struct({"a": pa.int32()}))
    message = refused(pa.table({"c": fields}), (column("c", "ROW<a INT NOT NULL>"),))
    assert message.startswith("column 'c.a' is null in row 0")
    items = pa.array([[1], [None]], pa.list_(pa.int32()))
    message = refused(pa.table({"c": items}), (column("c", "ARRAY<INT NOT NULL>"),))
    assert message == "column 'c.element' is null in row 1: expected a value, since the column is INT NOT NULL"


@cases("part", [pa.int32(), pa.int64()])
@cases("nullable", [True, False])
def test_beneath_a_null_there_may_be_nulls(part: pa.DataType, nullable: bool) -> None:
    """Readers of Parquet files return such rows, even if the parts of a value must not be null."""
    kind = pa.struct([pa.field("a", part, nullable)])
    values = pa.StructArray.from_arrays([pa.array([None, 2], part)], fields=list(kind), mask=pa.array([True, False]))
    maps = pa.MapArray.from_arrays([0, 2], pa.array(["x", "y"]), values)
    rows = pa.table({"c": values, "m": pa.concat_arrays([maps, maps])})
    table = conform(rows, (column("c", "ROW<a INT NOT NULL>"), column("m", "MAP<STRING, ROW<a INT NOT NULL>>")))
    table.validate(full=True)
    assert table.to_pylist() == [
        {"c": None, "m": [("x", None), ("y", {"a": 2})]},
        {"c": {"a": 2}, "m": [("x", None), ("y", {"a": 2})]},
    ]


@pytest.mark.parametrize(
    ("unit", "text", "last"), [("s", "TIMESTAMP(0)", 9223372036854), ("ms", "TIMESTAMP_LTZ(3)", 9223372036854775)]
)
def test_timestamps_stay_within_what_microseconds_hold(unit: str, text: str, last: int) -> None:
    fits = pa.table({"c": pa.array([last, -last, None], pa.timestamp(unit))})
    assert conform(fits, [column("c", text)]).num_rows == 3
    for value in (last + 1, -last - 1):
        beyond = pa.table({"c": pa.array([value], pa.timestamp(unit))})
        assert "'c' has a timestamp beyond what the lake can hold" in refused(beyond, (column("c", text),))


def test_missing_unknown_and_repeated_columns_are_named() -> None:
    assert "the rows have no column 'price': expected the columns id, name, price" in refused(
        pa.table({"id": [1], "name": ["a"]})
    )
    assert "the table has no column 'extra'" in refused(
        pa.table({"id": [1], "name": ["a"], "price": [1], "extra": [1]})
    )
    twice = pa.Table.from_arrays([pa.array([1])] * 2, names=["id", "id"])
    assert "the column 'id' twice" in refused(twice, COLUMNS[:1])


def test_a_null_is_refused_where_the_column_is_not_null_and_in_the_key() -> None:
    rows = pa.table({"id": pa.chunked_array([[1, 2], [None]], pa.int64())})
    assert refused(rows, COLUMNS[:1]).startswith("column 'id' is null in row 2: expected a value")
    names = pa.table({"name": ["a", None]})
    assert conform(names, COLUMNS[1:2]).num_rows == 2
    assert refused(names, COLUMNS[1:2], ("name",)) == (
        "column 'name' is null in row 1: expected a value, since the column is part of the key"
    )
    assert "column 'id' is null in row 0" in refused(pa.table({"id": pa.nulls(1)}), COLUMNS[:1])


def test_bytes_of_a_damaged_message_are_refused_before_they_are_followed() -> None:
    offsets = pa.array([0, 1_000_000, 1], pa.int32()).buffers()[1]
    beyond = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"x"))
    not_utf8 = pa.array([b"\xff"]).view(pa.string())
    for values in (beyond, not_utf8):
        assert refused(pa.table({"name": values}), COLUMNS[1:2]).startswith("the rows are damaged (")
