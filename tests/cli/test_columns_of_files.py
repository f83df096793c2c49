"""Which types a table made from a CSV file has, and that no number changes in silence."""

from __future__ import annotations

import json
import struct
from contextlib import nullcontext
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_tiering.cli.row_files.file_columns import check_doubles


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
