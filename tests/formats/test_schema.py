import pyarrow as pa
import pytest
from refusals import refused

from cases import cases
from fluss_tiering.formats.schema import arrow_schema, arrow_type, column_from_arrow, columns_from_arrow
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType


@cases(
    ("text", "expected"),
    [
        ("BOOLEAN", pa.bool_()),
        ("INT", pa.int32()),
        ("TINYINT", pa.int8()),
        ("SMALLINT", pa.int16()),
        ("BIGINT", pa.int64()),
        ("FLOAT", pa.float32()),
        ("DOUBLE", pa.float64()),
        ("DECIMAL(10, 2)", pa.decimal128(10, 2)),
        ("DECIMAL(38, 18)", pa.decimal128(38, 18)),
        ("STRING", pa.string()),
        ("CHAR(3)", pa.string()),
        ("BINARY(3)", pa.binary(3)),
        ("BYTES", pa.binary()),
        ("DATE", pa.date32()),
        ("TIME", pa.time32("s")),
        ("TIME(1)", pa.time32("ms")),
        ("TIME(3)", pa.time32("ms")),
        ("TIME(4)", pa.time64("us")),
        ("TIME(9)", pa.time64("ns")),
        ("ARRAY<INT NOT NULL>", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("MAP<STRING, INT>", pa.map_(pa.string(), pa.int32())),
        ("ROW<a INT, b ARRAY<STRING>>", pa.struct({"a": pa.int32(), "b": pa.list_(pa.field("element", pa.string()))})),
        ("TIMESTAMP(0)", pa.timestamp("s")),
        ("TIMESTAMP(1)", pa.timestamp("ms")),
        ("TIMESTAMP(3)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("us")),
        ("TIMESTAMP", pa.timestamp("us")),
        ("TIMESTAMP(7)", pa.timestamp("ns")),
        ("TIMESTAMP_LTZ(9)", pa.timestamp("ns")),
        ("TIMESTAMP_LTZ(6)", pa.timestamp("us")),
    ],
)
def test_arrow_types_are_those_of_fluss(text: str, expected: pa.DataType) -> None:
    assert arrow_type(DataType.parse(text)) == expected


def test_the_schema_keeps_order_names_and_nullability() -> None:
    columns = (Column("b", DataType.parse("INT NOT NULL")), Column("a", DataType.parse("STRING")))
    assert arrow_schema(columns) == pa.schema([pa.field("b", pa.int32(), nullable=False), pa.field("a", pa.string())])


@cases(
    ("kind", "expected"),
    [
        (pa.bool_(), "BOOLEAN"),
        (pa.int8(), "TINYINT"),
        (pa.uint8(), "SMALLINT"),
        (pa.int16(), "SMALLINT"),
        (pa.uint16(), "INT"),
        (pa.int32(), "INT"),
        (pa.uint32(), "BIGINT"),
        (pa.int64(), "BIGINT"),
        (pa.float16(), "FLOAT"),
        (pa.float32(), "FLOAT"),
        (pa.float64(), "DOUBLE"),
        (pa.decimal128(7, 3), "DECIMAL(7, 3)"),
        (pa.decimal256(38, 0), "DECIMAL(38, 0)"),
        (pa.string(), "STRING"),
        (pa.large_string(), "STRING"),
        (pa.string_view(), "STRING"),
        (pa.dictionary(pa.int32(), pa.string()), "STRING"),
        (pa.binary(), "BYTES"),
        (pa.large_binary(), "BYTES"),
        (pa.binary_view(), "BYTES"),
        (pa.binary(7), "BINARY(7)"),
        (pa.dictionary(pa.int32(), pa.binary()), "BYTES"),
        (pa.date32(), "DATE"),
        (pa.date64(), "DATE"),
        (pa.time32("s"), "TIME(0)"),
        (pa.time32("ms"), "TIME(3)"),
        (pa.time64("us"), "TIME(6)"),
        (pa.time64("ns"), "TIME(9)"),
        (pa.large_list(pa.int8()), "ARRAY<TINYINT>"),
        (pa.map_(pa.string(), pa.list_(pa.string())), "MAP<STRING NOT NULL, ARRAY<STRING>>"),
        (pa.struct([pa.field("a b", pa.bool_(), nullable=False)]), "ROW<`a b` BOOLEAN NOT NULL>"),
        (pa.timestamp("s"), "TIMESTAMP(0)"),
        (pa.timestamp("ms"), "TIMESTAMP(3)"),
        (pa.timestamp("us"), "TIMESTAMP(6)"),
        (pa.timestamp("ns"), "TIMESTAMP(9)"),
        (pa.timestamp("us", "Europe/Berlin"), "TIMESTAMP_LTZ(6)"),
    ],
)
def test_a_column_is_wide_enough_for_its_arrow_field(kind: pa.DataType, expected: str) -> None:
    assert column_from_arrow(pa.field("c", kind)) == Column("c", DataType.parse(expected))


@cases(
    "kind",
    [
        pa.uint64(),
        pa.null(),
        pa.duration("us"),
        pa.list_(pa.uint64()),
        pa.struct([]),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.dictionary(pa.int32(), pa.uint64()),
    ],
)
def test_an_unsupported_type_names_column_and_type(kind: pa.DataType) -> None:
    with refused(ErrorCode.INVALID_TABLE, "'odd'", str(kind)):
        columns_from_arrow(pa.schema([pa.field("fine", pa.int32()), pa.field("odd", kind)]))


def test_not_null_columns_are_those_named_and_those_that_never_were_nullable() -> None:
    schema = pa.schema(
        [pa.field("k", pa.int64()), pa.field("v", pa.int64()), pa.field("n", pa.int64(), nullable=False)]
    )
    columns = columns_from_arrow(schema, ["k"])
    assert [column.data_type.nullable for column in columns] == [False, True, False]


def test_a_not_null_name_must_be_a_column() -> None:
    with pytest.raises(FlussTieringError, match=r"no column 'x'.*a, b") as caught:
        columns_from_arrow(pa.schema([("a", pa.int32()), ("b", pa.int32())]), ["x"])
    assert caught.value.code is ErrorCode.INVALID_TABLE


def test_two_columns_of_one_name_are_refused() -> None:
    with refused(ErrorCode.INVALID_TABLE, "two columns are named 'a'"):
        columns_from_arrow(pa.schema([("a", pa.int32()), ("a", pa.string())]))
