import pytest

from cases import cases
from fluss_tiering.model.data_type import DataType, DataTypeRoot, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@cases(
    ("text", "expected"),
    [
        ("int", DataType(DataTypeRoot.INT)),
        (" TINYINT not  null ", DataType(DataTypeRoot.TINYINT, nullable=False)),
        ("DECIMAL", DataType(DataTypeRoot.DECIMAL, precision=10)),
        ("DECIMAL(5)", DataType(DataTypeRoot.DECIMAL, precision=5)),
        ("decimal( 5 , 2 ) NULL", DataType(DataTypeRoot.DECIMAL, precision=5, scale=2)),
        ("TIME", DataType(DataTypeRoot.TIME)),
        ("TIME(3)", DataType(DataTypeRoot.TIME, precision=3)),
        ("TIMESTAMP", DataType(DataTypeRoot.TIMESTAMP, precision=6)),
        ("CHAR", DataType(DataTypeRoot.CHAR, length=1)),
        ("BINARY(16) NOT NULL", DataType(DataTypeRoot.BINARY, nullable=False, length=16)),
        (
            "array < int not null >",
            DataType(DataTypeRoot.ARRAY, fields=(Field("element", DataType(DataTypeRoot.INT, nullable=False)),)),
        ),
        (
            "MAP<CHAR(2), ARRAY<TIME(3)>> NOT NULL",
            DataType(
                DataTypeRoot.MAP,
                nullable=False,
                fields=(
                    Field("key", DataType(DataTypeRoot.CHAR, nullable=False, length=2)),
                    Field(
                        "value",
                        DataType(
                            DataTypeRoot.ARRAY, fields=(Field("element", DataType(DataTypeRoot.TIME, precision=3)),)
                        ),
                    ),
                ),
            ),
        ),
        (
            "ROW<a INT, `b ``c` DECIMAL(5, 2) NOT NULL 'it''s'>",
            DataType(
                DataTypeRoot.ROW,
                fields=(
                    Field("a", DataType(DataTypeRoot.INT)),
                    Field("b `c", DataType(DataTypeRoot.DECIMAL, False, 5, 2), "it's"),
                ),
            ),
        ),
    ],
)
def test_a_type_is_read_from_its_text_and_written_as_such(text: str, expected: DataType) -> None:
    assert DataType.parse(text) == expected
    assert DataType.parse(str(expected)) == expected


NO_TYPES = ["", "VARCHAR(3)", "DECIMAL(٣, 1)", "INT(3)", "BYTES(3)", "TIME(1, 2)", "INT NOT", "CHAR()", "INT;"]
NO_NESTED_TYPES = [
    "ARRAY",
    "ARRAY<>",
    "ARRAY<INT, INT>",
    "MAP<INT>",
    "ROW<INT>",
    "ARRAY<ROW>",
]


@cases("text", [*NO_TYPES, *NO_NESTED_TYPES])
def test_what_is_no_type_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(FlussTieringError, match="is not a type: expected one of BOOLEAN, TINYINT") as caught:
        DataType.parse(text)
    assert caught.value.code is ErrorCode.INVALID_TABLE


@cases(
    ("text", "told"),
    [
        ("ARRAY<INT", "its bracket '<' is not closed: expected '>' after it"),
        ("ROW<a INT", "its bracket '<' is not closed: expected '>' after it"),
        ("ROW<a DECIMAL(3, 2>", "its bracket '>' closes none: expected one that opens before it"),
        ("DECIMAL(10", "its bracket '(' is not closed: expected ')' after it"),
        ("ARRAY<" * 20, "its bracket '<' is not closed: expected '>' after it"),
        ("ROW<a INT>>", "its bracket '>' closes none: expected one that opens before it"),
        ("INT)", "its bracket ')' closes none: expected one that opens before it"),
        ("ROW<`a>` INT, b INT ')'", "its bracket '<' is not closed: expected '>' after it"),
    ],
)
def test_a_bracket_without_its_other_one_is_named(text: str, told: str) -> None:
    with pytest.raises(FlussTieringError) as caught:
        DataType.parse(text)
    assert caught.value.code is ErrorCode.INVALID_TABLE
    assert caught.value.message == f"{text!r} is not a type: {told}"


@pytest.mark.parametrize("text", ["ROW<a INT, a INT>", "ROW<`` INT>"])
def test_fields_have_names_of_their_own(text: str) -> None:
    with pytest.raises(FlussTieringError, match="expected fields that all have different names"):
        DataType.parse(text)


@cases(
    "text", ["DECIMAL(0)", "DECIMAL(39)", "DECIMAL(3, 4)", "TIME(10)", "TIMESTAMP(10)", "CHAR(0)", "BINARY(2147483648)"]
)
def test_what_a_type_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(FlussTieringError, match=r"expected a (precision|length) from") as caught:
        DataType.parse(text)
    assert caught.value.code is ErrorCode.INVALID_TABLE
