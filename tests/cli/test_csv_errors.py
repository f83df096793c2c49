"""What is said of a CSV file that cannot be put: the line, the column, the value and what was expected."""

from __future__ import annotations

import io
import itertools
from random import Random

import pytest

from fluss_tiering.cli.row_files import files
from fluss_tiering.cli.row_files.csv_quotes import OpenQuotes

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


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("id", "9999999999", "a whole number from -2147483648 to 2147483647 (INT NOT NULL)"),
        ("d", "1.234", "a number with up to 3 digits before the point and up to 2 after it (DECIMAL(5, 2))"),
        ("d", "-1000.00", "a number with up to 3 digits"),
        ("d", "9" * 50, "a number with up to 3 digits"),
        ("large", "1" + "0" * 38, "a number with up to 38 digits before the point and up to 0 after it"),
        ("b", "00", "2 bytes, each as two hexadecimal digits (BINARY(2))"),
        ("b", "xy", "2 bytes"),
        ("x", "y", "a number from -1.7976931348623157e308 to 1.7976931348623157e308, inf, -inf or nan (DOUBLE)"),
        ("x", "1e400", "a number from -1.7976931348623157e308"),
        ("fl", "1e39", "a number from -3.4028235e38 to 3.4028235e38, inf, -inf or nan (FLOAT)"),
        ("fl", "-3.4028236e38", "a number from -3.4028235e38"),
        ("f", "maybe", "true or false (BOOLEAN)"),
        ("s", "300", "a whole number from -128 to 127 (TINYINT)"),
        ("l", "2026-01-01T00:00:00+01:00", "a date and a time in UTC, for example 2026-01-31 12:30:00Z"),
        ("l", "999999-01-01 00:00:00", "a date and a time in UTC"),
        ("day", "12345-13-01", "a date, for example 2026-01-31"),
        ("t", "it's noon", "a time of day, for example 12:30:00"),
        ("day", "noon", "a date, for example 2026-01-31"),
        ("c", "abc", "a text of up to 2 characters (CHAR(2))"),
    ],
)
def test_the_value_its_place_and_what_was_expected_are_told(command, typed, tmp_path, column, value, expected):
    path = tmp_path / "rows.csv"
    # An empty line and a line break in a value count as lines of the file, and not as rows.
    lines = [",".join(NAMES), row(note='"two\nlines"'), "", row(), row(**{column: value}), row(id="2")]
    path.write_text("\n".join(lines))
    said = f"cannot read {path}: line 6, column '{column}': {value!r} does not fit: expected {expected}"
    assert command("put", typed, path).refuses(2, said)


def test_a_missing_value_is_told(command, typed, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f"{','.join(NAMES)}\n{row()}\n{row(id='')}\n")
    assert command("put", typed, path).refuses(2, "line 3, column 'id': there is no value: expected a whole number")


@pytest.mark.parametrize("column", [name for name in NAMES if name not in {"b", "c", "note"}])
def test_an_empty_text_is_refused_in_a_column_without_text(command, typed, tmp_path, column):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([",".join(NAMES), row(**{column: '""'})]))
    said = command("put", typed, path)
    assert said.refuses(2, f"line 2, column '{column}': '' does not fit", "or nothing without quotes for NULL")


def test_a_value_in_quotes_is_not_null(command, typed, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([",".join(NAMES), row(s="NA"), row(s='"NA"')]))
    assert command("put", typed, path, "--null-value", "NA").refuses(2, "line 3, column 's': 'NA' does not fit")


def test_infinity_and_nan_are_taken_by_name(command, client, typed, tmp_path):
    path = tmp_path / "rows.csv"
    rows = [row(x=name, fl=name) for name in ("inf", "-inf", "nan", " Infinity", "-INF", "1e-60", "3.4028235e38")]
    path.write_text("\n".join([",".join(NAMES), *rows]))
    assert "Appended 7 rows" in command("put", typed, path).out
    assert [line.split(",") for line in command("scan", typed, "--columns", "x,fl").out.splitlines()[1:]] == [
        ["inf", "inf"],
        ["-inf", "-inf"],
        ["nan", "nan"],
        ["inf", "inf"],
        ["-inf", "-inf"],
        ["1e-60", "0"],
        ["3.4028235e+38", "3.4028235e+38"],
    ]


def test_an_empty_file_is_told(command, typed, tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("")
    told = f"cannot read {path}: it is empty: expected CSV whose first line names the columns"
    assert command("put", typed, path).refuses(2, told)
    assert command("tables", "create", f"{typed}_like", "--like", path).refuses(2, told)


def test_blank_lines_between_rows_are_no_rows(command, typed, tmp_path):
    path = tmp_path / "blank.csv"
    path.write_text("\n\n".join([",".join(NAMES), row(), f"{row(id='2')}\n\n"]))
    assert "Appended 2 rows" in command("put", typed, path).out


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
    told = f'the row that begins on line {line} has a quote that is not closed: expected " at the end of its value'
    assert command("put", typed, path).refuses(2, str(path), told)
    assert command("tables", "create", f"{typed}_like", "--like", path).refuses(2, str(path), told)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert command("put", typed, "-").refuses(2, "cannot read -", told)
    assert command("scan", typed, "--format", "json").out == ""


def test_rows_of_a_late_block_with_an_open_quote_are_not_written(command, table, monkeypatch):
    command("tables", "create", table, "-c", "n INT", "-c", "note STRING")
    monkeypatch.setattr(files, "_READ", files.pa.csv.ReadOptions(use_threads=False, block_size=2**16))
    text = "n,note\n" + '1,"a\nb"\n' * 40_000 + '2,"c\n3,d\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    told = "the row that begins on line 80002 has a quote that is not closed"
    assert command("put", table, "-").refuses(2, told)
    assert '2,"c' not in command("scan", table, "--format", "csv").out


def test_an_open_quote_is_found_however_the_text_comes():
    for seed in range(2_000):
        random = Random(seed)
        text = "".join(random.choices(['"', '""', "a", "é", ",", "\n", "\r\n", "\r"], k=random.randint(0, 25)))
        data = text.encode()
        quotes = OpenQuotes()
        cuts = sorted(random.choices(range(len(data) + 1), k=random.randint(0, 8)))
        for start, end in itertools.pairwise((0, *cuts, len(data))):
            quotes.read(data[start:end])
        assert quotes.line() == line_of_open_quote(text), text


def line_of_open_quote(text: str) -> int | None:
    """The line on which the row with an open quote begins, by the rules of RFC 4180, character by character."""
    line = begin = 1
    state = "start"
    for char in text.replace("\r\n", "\n").replace("\r", "\n"):
        line += char == "\n"
        if state == "quoted":
            state = "quote" if char == '"' else "quoted"
        elif char == "\n":
            state, begin = "start", line
        elif char == ",":
            state = "start"
        elif char == '"' and state in ("start", "quote"):
            state = "quoted"
        else:
            state = "text"
    return begin if state == "quoted" else None


def test_a_quote_within_a_value_without_quotes_opens_none(command, typed, tmp_path):
    path = tmp_path / "inches.csv"
    path.write_text("\n".join([",".join(NAMES), row(note='5" disk'), ""]))
    assert command("put", typed, path).code == 0
    assert '"note":"5\\" disk"' in command("scan", typed, "--format", "json").out


def test_text_that_is_not_utf8_is_told(command, typed, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(f"{','.join(NAMES)}\n{row(note='x')}\n".encode().replace(b"x", b"\xff"))
    assert command("put", typed, path).refuses(2, "line 2, column 'note'", "expected text in UTF-8 (STRING)")


def test_the_line_is_right_in_a_later_block_of_a_file(command, typed, tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    lines = 40_000
    monkeypatch.setattr(files, "_READ", files.pa.csv.ReadOptions(use_threads=False, block_size=2**20))
    path.write_text(f"{','.join(NAMES)}\n" + f"{row(note='x' * 40)}\n" * lines + f"{row(c='abc')}\n")
    assert path.stat().st_size > 2 * 2**20
    assert command("put", typed, path).refuses(2, f"line {lines + 2}, column 'c': 'abc' does not fit")


def test_the_line_is_right_in_a_file_of_one_column_whose_empty_lines_are_rows(command, table, tmp_path):
    command("tables", "create", table, "-c", "n INT")
    path = tmp_path / "rows.csv"
    path.write_text("n\n1\n\n\nx\n")
    assert command("put", table, path).refuses(2, "line 5, column 'n': 'x' does not fit")


def test_empty_lines_of_a_column_without_null_are_no_rows(command, table, tmp_path):
    command("tables", "create", table, "-c", "n INT NOT NULL")
    path = tmp_path / "rows.csv"
    path.write_text("n\n1\n\n2\n\n")
    assert "Appended 2 rows" in command("put", table, path).out


def test_a_long_value_is_cut(command, typed, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f"{','.join(NAMES)}\n{row(x='y' * 5000)}\n")
    answer = command("put", typed, path)
    assert answer.refuses(2, "line 2, column 'x': 'yyy")
    assert len(answer.err) < 500


def test_the_largest_decimals_are_taken(command, typed, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f"{','.join(NAMES)}\n{row(large='9' * 38, d='-999.99', c='äö')}\n")
    assert "Appended 1 row" in command("put", typed, path).out


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


def test_lines_are_not_counted_in_a_file_that_cannot_be_read_twice(command, typed, tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_text(f"{','.join(NAMES)}\n{row(f='maybe')}\n")
    monkeypatch.setattr(files.Path, "is_file", lambda _: False)
    assert command("put", typed, path).refuses(2, "row 2 (row 1 has the names), column 'f': 'maybe' does not fit")
