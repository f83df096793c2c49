"""What `scan --format csv` writes, `put` reads back as it was, and a table made from a file has the file's numbers."""

from __future__ import annotations

import csv
import json
import math
import struct
from collections.abc import Sequence
from contextlib import nullcontext
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_tiering.cli.row_files.file_columns import check_doubles
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind

VALUES = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-32768, 32767],
    "INT": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [0.1, -0.0, 3.4028235e38, math.inf, -math.inf, math.nan],
    "DOUBLE": [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
    "DECIMAL(38, 10)": [Decimal("1E-10"), Decimal("-12345678901234567890.1")],
    "CHAR(3)": ["", 'a"ö', "NA", " ,\n"],
    "STRING": ["", " ", "NA", "NULL", '""', "\\N", "two\r\nlines\r", "\x01 😀,;\t", "# no comment"],
    "BINARY(2)": [b"\x00\xff"],
    "BYTES": [b"", b"\x00,\n\xff"],
    "DATE": [20_000, -1, -719_162, 2_932_896],
    "TIME(0)": [0, 86_399],
    "TIME(3)": [43_200_001],
    "TIME(9)": [86_399_999_000_000],
    "TIMESTAMP(0)": [1_700_000_000, -1, 253_402_300_799],
    "TIMESTAMP(3)": [1_700_000_000_123, -1, 253_402_300_799_999],
    "TIMESTAMP(6)": [1_700_000_000_123_456, -1, 253_402_300_799_999_999],
    "TIMESTAMP(9)": [1_700_000_000_123_456_789, -1, 2**63 - 1],
    "TIMESTAMP_LTZ(0)": [1_700_000_000, -1, 253_402_300_799],
    "TIMESTAMP_LTZ(6)": [1_700_000_000_123_456, -1, 253_402_300_799_999_999],
    "TIMESTAMP_LTZ(9)": [1_700_000_000_123_456_789],
}
LONG = 3 * 2**20


def filled(client, table: str, columns: Sequence[Column], rows: pa.Table) -> TablePath:
    path = TablePath.parse(table)
    client.create_table(path, TableDescriptor(tuple(columns), (), (), 1))
    list(client.write_rows(path, WriteKind.APPEND, [rows]))
    return path


def copied(command, table: str, tmp_path, *options: str) -> str:
    """Copy a table through a CSV file, and return the name of the copy."""
    out = command("scan", table, "--format", "csv").out
    path = tmp_path / "rows.csv"
    path.write_text(out, newline="")
    copy = f"{table}_copy"
    described = command("tables", "describe", table, "--json").out
    columns = [f"{each['name']} {each['type']}" for each in json.loads(described)[0]["columns"]]
    made = command("tables", "create", copy, *(text for each in columns for text in ("-c", each)))
    assert made.code == 0, made
    put = command("put", copy, path, *options)
    assert put.code == 0, put
    return copy


def stored(command, table: str) -> str:
    """Return all rows in a format that tells each value from each other one."""
    return command("scan", table, "--format", "json").out + command("scan", table, "--format", "csv").out


EDGES = {"FLOAT": [2**-149, 3.4028235e38], "DOUBLE": [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308]}
"""The smallest and the largest numbers. All of them are exact."""


@pytest.mark.parametrize("kind", EDGES)
def test_numbers_that_json_lacks_come_back_from_its_lines(command, client, table, tmp_path, kind: str):
    edges = [0.0, 0.1, math.nan, math.inf, *EDGES[kind]]
    numbers = [*edges, *(-each for each in edges), None]
    columns = (Column("x", DataType.parse(kind)),)
    schema = arrow_schema(columns)
    filled(client, table, columns, pa.table([pa.array(numbers, schema.types[0])], schema))

    out = command("scan", table, "--format", "json").out
    assert '{"x":"NaN"}' in out
    lines = [json.loads(line, parse_constant=pytest.fail)["x"] for line in out.splitlines()]
    assert [each for each in lines if isinstance(each, str)] == ["NaN", "Infinity", "NaN", "-Infinity"]
    zeros = [math.copysign(1, each) for each in lines if each == 0]
    assert zeros == [1, -1]
    # Lines of JSON as a CSV file, which `put` reads.
    (tmp_path / "lines.csv").write_text("x\n" + "".join("\n" if x is None else f"{x}\n" for x in lines))
    copy = f"{table}_of_lines"
    assert command("tables", "create", copy, "-c", f"x {kind}").code == 0
    assert command("put", copy, tmp_path / "lines.csv").code == 0
    assert stored(command, copy) == stored(command, table)
    assert stored(command, copied(command, table, tmp_path)) == stored(command, table)


def test_numbers_that_json_lacks_are_texts_at_any_depth(command, client, table):
    columns = (Column("r", DataType.parse("ROW<a ARRAY<DOUBLE>, m MAP<FLOAT, FLOAT>>")),)
    numbers = [math.nan, math.inf, -math.inf, -0.0, 1.5]
    row = {"a": numbers, "m": [(each, -each) for each in numbers]}
    filled(client, table, columns, pa.table([pa.array([row], arrow_schema(columns).types[0])], arrow_schema(columns)))

    told = (
        '{"a":["NaN","Infinity","-Infinity",-0.0,1.5],'
        '"m":[["NaN","NaN"],["Infinity","-Infinity"],["-Infinity","Infinity"],[-0.0,0.0],[1.5,-1.5]]}'
    )
    assert command("scan", table, "--format", "json").out == f'{{"r":{told}}}\n'
    (quoted,) = csv.reader(command("scan", table, "--format", "csv").out.splitlines()[1:])
    assert quoted == [told]


def test_values_of_all_types_and_null_come_back(command, client, table, tmp_path):
    columns = tuple(Column(f"c{number}", DataType.parse(kind)) for number, kind in enumerate(VALUES))
    schema = arrow_schema(columns)
    count = max(map(len, VALUES.values())) + 1
    padded = [values + [None] * (count - len(values)) for values in VALUES.values()]
    filled(
        client, table, columns, pa.table([pa.array(*each) for each in zip(padded, schema.types, strict=True)], schema)
    )
    assert stored(command, copied(command, table, tmp_path)) == stored(command, table)


def test_a_text_that_means_null_elsewhere_stays_a_text(command, client, table, tmp_path):
    columns = (Column("n", DataType.parse("INT")), Column("v", DataType.parse("STRING")))
    rows = pa.table([pa.array([1, 2, 3], pa.int32()), ["NA", None, ""]], arrow_schema(columns))
    filled(client, table, columns, rows)
    copy = copied(command, table, tmp_path, "--null-value", "NA")
    assert command("scan", copy, "--format", "csv").out == '"n","v"\n1,"NA"\n2,\n3,""\n'


@pytest.mark.parametrize("kind", ["INT", "STRING"])
def test_null_in_the_only_column_comes_back(command, client, table, tmp_path, kind):
    columns = (Column("v", DataType.parse(kind)),)
    schema = arrow_schema(columns)
    rows = pa.table([pa.array([None, 1, None, None]).cast(schema.field("v").type)], schema)
    filled(client, table, columns, rows)
    copy = copied(command, table, tmp_path)
    assert stored(command, copy).count("null") == 3
    assert stored(command, copy) == stored(command, table)


@pytest.mark.slow
def test_long_values_come_back(command, client, table, tmp_path):
    columns = (Column("v", DataType.parse("STRING")), Column("b", DataType.parse("BYTES")))
    rows = pa.table([["x" * LONG, '"' * LONG], [b"\xff" * LONG, None]], arrow_schema(columns))
    filled(client, table, columns, rows)
    assert stored(command, copied(command, table, tmp_path)) == stored(command, table)


def test_an_empty_text_makes_a_column_a_text(command, table, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('a,b,c,d\n1,"",NA,"NA"\n,2,3,\n')
    assert command("tables", "create", table, "--like", path, "--null-value", "NA").code == 0
    (described,) = json.loads(command("tables", "describe", table, "--json").out)
    assert [each["type"] for each in described["columns"]] == ["BIGINT", "STRING", "BIGINT", "STRING"]
    assert command("put", table, path, "--null-value", "NA").code == 0
    assert command("scan", table, "--format", "csv").out == '"a","b","c","d"\n1,"",,"NA"\n,"2",3,\n'


def columns(command, table):
    (described,) = json.loads(command("tables", "describe", table, "--json").out)
    return [(each["name"], each["type"]) for each in described["columns"]]


def test_the_types_that_are_guessed_are_told(command, table, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,name,price,day,at,open,begun,given\n1,a,1.5,2026-01-31,2026-01-31 12:30:00,true,12:30:00,007\n2,,,,,,,008\n"
    )
    answer = command("tables", "create", table, "--like", path, "--primary-key", "id", "-c", "given STRING")
    assert answer.code == 0, answer.err
    assert columns(command, table) == [
        ("id", "BIGINT NOT NULL"),
        ("name", "STRING"),
        ("price", "DOUBLE"),
        ("day", "DATE"),
        ("at", "TIMESTAMP(0)"),
        ("open", "BOOLEAN"),
        ("begun", "TIME(0)"),
        ("given", "STRING"),
    ]
    assert "guessed from" in answer.err
    assert "id BIGINT NOT NULL, name STRING, price DOUBLE, day DATE" in answer.err
    assert "given" not in answer.err, "nobody guessed it"
    again = command("tables", "create", table, "--like", path, "--primary-key", "id", "--if-not-exists")
    assert again.code == 0
    assert "guessed" not in again.err, "the table that exists has other types"


def test_the_types_of_a_parquet_file_are_not_guessed(command, table, tmp_path):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"id": [1], "moment": pa.array([1], pa.duration("s")), "price": [1.5]}), path)
    assert "moment" in command("tables", "create", table, "--like", path).err
    answer = command("tables", "create", table, "--like", path, "-c", "moment BIGINT", "-c", "price FLOAT NOT NULL")
    assert (answer.code, answer.err) == (0, "")
    assert columns(command, table) == [("id", "BIGINT"), ("moment", "BIGINT"), ("price", "FLOAT NOT NULL")]


def test_only_columns_of_the_file_have_another_type(command, table, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,amount\n1,2.5\n")
    answer = command("tables", "create", table, "--like", path, "-c", "amuont DECIMAL(10, 2)")
    assert answer.refuses(2, "'amuont'", "expected one of those that it has, id, amount")


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["12345678901234567.89", "0.1"], "DECIMAL(19, 2)"),
        (["0.5", "0.12345678901234567890"], "DECIMAL(20, 20)"),
        (["12345678901234567890"], "DECIMAL(20, 0)"),
        ([" -9007199254740993.5\t", ""], "DECIMAL(17, 1)"),
        (["1e10", "1234567890123456789.25"], "DECIMAL(21, 2)"),
        (["1e300", "1234567890123456789.25"], "STRING"),
        (["inf", "1234567890123456789.25"], "STRING"),
    ],
)
def test_a_number_that_a_double_would_change_is_refused(command, client, table, tmp_path, texts, type_):
    path = tmp_path / "rows.csv"
    path.write_text("id,the amount\n" + "".join(f"{number},{text}\n" for number, text in enumerate(texts)))
    assert command("tables", "create", table, "--like", path).refuses(2, f"{path}: the column 'the amount'", "--column")
    assert command("tables", "describe", table).refuses(1, "does not exist")
    assert command("tables", "create", table, "--like", path, "-c", f"`the amount` {type_}").code == 0
    put = command("put", table, path)
    assert put.code == 0, put.err
    rows = command("scan", table, "--format", "json").out.splitlines()
    kept = [json.loads(row, parse_float=Decimal, parse_int=Decimal)["the amount"] for row in rows]
    wanted = [text.strip() or None for text in texts]
    if type_ == "STRING":
        assert kept == wanted
    else:
        assert [None if each is None else Decimal(each) for each in kept] == [
            None if each is None else Decimal(each) for each in wanted
        ]


def test_the_nearest_numbers_can_be_asked_for(command, table, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("amount\n12345678901234567.89\n")
    assert command("tables", "create", table, "--like", path, "-c", "amount DOUBLE").code == 0
    assert command("put", table, path).code == 0


@given(
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]),
    st.sampled_from([repr, "{:.15g}".format, "{:.17g}".format, "{:.17e}".format, "{:.25g}".format, "{:.30e}".format]),
)
def test_what_a_program_writes_of_its_doubles_is_not_refused(number, written):
    check_doubles(pa.record_batch({"x": [written(number), None]}))


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**22), max_value=10**22, places=3))
def test_what_is_not_refused_differs_from_its_double_in_no_digit_that_is_written(number):
    text = f"{number:f}"
    digits = max(17, len(number.as_tuple().digits))
    is_kept = number in (Decimal(repr(float(text))), Decimal(f"{float(text):.{digits}g}"))
    with nullcontext() if is_kept else pytest.raises(pa.ArrowInvalid, match="'x'"):
        check_doubles(pa.record_batch({"x": [text]}))
