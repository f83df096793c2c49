"""What is said of a CSV file that cannot be put: the row, the column, its type, and the reason with the value."""

from __future__ import annotations

import io
import os
import threading

import pytest

from cases import cases
from fluss_tiering.cli.row_files import csv_rows

COLUMNS = (
    "id INT NOT NULL",
    "d DECIMAL(5, 2)",
    "b BINARY(2)",
    "x DOUBLE",
    "f BOOLEAN",
    "s TINYINT",
    "l TIMESTAMP_LTZ",
    "t TIME",
    "day DATE",
    "c CHAR(2)",
    "note STRING",
    "large DECIMAL(38, 0)",
    "fl FLOAT",
)
NAMES = [each.split()[0] for each in COLUMNS]


@pytest.fixture
def typed(command, table) -> str:
    assert command("tables", "create", table, *(text for each in COLUMNS for text in ("-c", each))).code == 0
    return table


def row(**values: str) -> str:
    return ",".join({"id": "1", **values}.get(name, "") for name in NAMES)


@pytest.fixture
def put(command, typed, tmp_path):
    """Puts the file `rows.csv` with these lines below its header."""

    def call(*lines, options=()):
        path = tmp_path / "rows.csv"
        path.write_text("\n".join([",".join(NAMES), *lines, ""]))
        return command("put", typed, path, *options)

    return call


@cases(
    ("column", "value", "kind"),
    [
        ("id", "9999999999", "INT NOT NULL"),
        ("d", "1.234", "DECIMAL(5, 2)"),
        ("d", "-1000.00", "DECIMAL(5, 2)"),
        ("d", "9" * 50, "DECIMAL(5, 2)"),
        ("large", "1" + "0" * 38, "DECIMAL(38, 0)"),
        ("b", "00", "BINARY(2)"),
        ("b", "xy", "BINARY(2)"),
        ("x", "y", "DOUBLE"),
        ("x", "1e400", "DOUBLE"),
        ("fl", "1e39", "FLOAT"),
        ("fl", "-3.4028236e38", "FLOAT"),
        ("f", "maybe", "BOOLEAN"),
        ("s", "300", "TINYINT"),
        ("l", "2026-01-01T00:00:00+01:00", "TIMESTAMP_LTZ(6)"),
        ("l", "999999-01-01 00:00:00", "TIMESTAMP_LTZ(6)"),
        ("day", "12345-01-01", "DATE"),
        ("day", "noon", "DATE"),
        ("t", "it's noon", "TIME(0)"),
        ("c", "abc", "CHAR(2)"),
    ],
)
def test_the_row_the_column_and_the_value_are_told(command, typed, put, tmp_path, column, value, kind):
    # An empty line and a line break in a value make no rows. The names are the first row.
    said = put(row(note='"two\nlines"'), "", row(), row(**{column: value}), row(id="2"))
    assert said.refuses(2, f"cannot read {tmp_path / 'rows.csv'}: row 4, column '{column}' ({kind}): ")
    assert value in said.err or value == "1.234", "pyarrow does not show this one"
    assert command("scan", typed, "--format", "json").out == ""


def test_a_missing_value_is_told_and_a_long_one_is_cut(put):
    assert put(row(), row(id="")).refuses(2, "row 3, column 'id' (INT NOT NULL): there is no value")
    answer = put(row(x="y" * 5000))
    assert answer.refuses(2, "row 2, column 'x' (DOUBLE): ", "'yyy")
    assert len(answer.err) < 500


@cases("column", [name for name in NAMES if name not in {"b", "c", "note"}])
def test_an_empty_text_is_refused_in_a_column_without_text(put, column):
    assert put(row(**{column: '""'})).refuses(2, f"row 2, column '{column}' (")


def test_a_value_in_quotes_is_not_null(put):
    refused = put(row(s="NA"), row(s='"NA"'), options=["--null-value", "NA"])
    assert refused.refuses(2, "row 3, column 's' (TINYINT): ", "'NA'")


def test_infinity_and_nan_are_taken_by_name(command, typed, put):
    names = ("inf", "-inf", "nan", " Infinity", "-INF", "1e-60", "3.4028235e38")
    assert "Appended 7 rows" in put(*(row(x=name, fl=name) for name in names)).out
    expected = ["inf,inf", "-inf,-inf", "nan,nan", "inf,inf", "-inf,-inf", "1e-60,0", "3.4028235e+38,3.4028235e+38"]
    assert command("scan", typed, "--columns", "x,fl").out.splitlines()[1:] == expected


def test_an_empty_file_is_told(command, typed, tmp_path):
    path = tmp_path / "empty.csv"
    told = f"cannot read {path}: it is empty: expected CSV whose first line names the columns"
    for text in ("", "\n"):
        path.write_text(text)
        assert command("put", typed, path).refuses(2, told)
        assert command("tables", "create", f"{typed}_like", "--like", path).refuses(2, told)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,note\n1,"a\n2,b\n', 2),
        ('id,note\r\n1,"a\nb"\r\n2,"b""\r\n', 4),
        ('id,note\n1,"', 2),
        ('"id,note\n', 1),
    ],
)
def test_a_quote_that_nothing_closes_is_told(command, typed, tmp_path, monkeypatch, text, line):
    path = tmp_path / "open.csv"
    path.write_text(text, newline="")
    told = f"the row that begins on line {line} has a quote that is not closed"
    assert command("put", typed, path).refuses(2, str(path), told)
    assert command("tables", "create", f"{typed}_like", "--like", path).refuses(2, str(path), told)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert command("put", typed, "-").refuses(2, "cannot read -", told)
    assert command("scan", typed, "--format", "json").out == ""


def test_a_quote_within_a_value_without_quotes_opens_none(command, typed, put):
    assert put(row(note='5" disk')).code == 0
    assert '"note":"5\\" disk"' in command("scan", typed, "--format", "json").out


def test_text_that_is_not_utf8_is_told(command, typed, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(f"{','.join(NAMES)}\n{row(note='x')}\n".encode().replace(b"x", b"\xff"))
    assert command("put", typed, path).refuses(2, "row 2, column 'note' (STRING)", "UTF8")


def test_the_row_is_right_in_a_later_block_of_a_file(put, tmp_path, monkeypatch):
    lines = 40_000
    monkeypatch.setattr(csv_rows, "READ", csv_rows.pa.csv.ReadOptions(use_threads=False, block_size=2**20))
    refused = put(*[row(note="x" * 40)] * lines, row(c="abc"))
    assert (tmp_path / "rows.csv").stat().st_size > 2 * 2**20
    assert refused.refuses(2, f"row {lines + 2}, column 'c' (CHAR(2)): ")


def test_empty_lines_are_rows_of_one_column_that_may_be_null_and_of_no_other(command, table, put, tmp_path):
    command("tables", "create", f"{table}_null", "-c", "n INT")
    command("tables", "create", f"{table}_not_null", "-c", "n INT NOT NULL")
    path = tmp_path / "rows.csv"
    path.write_text("n\n1\n\n\nx\n")
    assert command("put", f"{table}_null", path).refuses(2, "row 5, column 'n' (INT): ")
    path.write_text("n\n1\n\n2\n\n")
    assert "Appended 2 rows" in command("put", f"{table}_not_null", path).out
    assert "Appended 2 rows" in put("", row(), "", row(id="2"), "", "").out


def test_the_largest_decimals_are_taken(put):
    assert "Appended 1 row" in put(row(large="9" * 38, d="-999.99", c="äö")).out


def test_a_column_that_csv_cannot_hold_is_named(command, table, tmp_path):
    command("tables", "create", table, "-c", "id INT", "-c", "tags ARRAY<INT>")
    path = tmp_path / "rows.csv"
    path.write_text("id,tags\n1,[1]\n")
    assert command("put", table, path).refuses(2, "'tags' (ARRAY<INT>)", "expected a Parquet file")


def test_columns_that_csv_cannot_hold_do_not_matter_to_a_file_without_them(command, table, tmp_path, monkeypatch):
    command("tables", "create", table, "-c", "id INT", "-c", "tags ARRAY<INT>", "--primary-key", "id")
    path = tmp_path / "rows.csv"
    path.write_text("id\n1\n")
    assert "Sent 1 delete" in command("put", "--delete", table, path).out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert "Sent 1 delete" in command("put", "--delete", table, "-").out
    assert command("put", table, path).refuses(2, "the rows have no column 'tags'")
    path.write_text("name\na\n")
    assert command("put", table, path).refuses(2, "the table has no column 'name'")


def test_a_named_pipe_is_read_as_a_file(command, typed, tmp_path):
    path = tmp_path / "rows.csv"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=[f"{','.join(NAMES)}\n{row()}\n{row(f='maybe')}\n"])
    writer.start()
    assert command("put", typed, path).refuses(2, f"cannot read {path}: row 3, column 'f' (BOOLEAN)")
    writer.join()
