"""Rows put and deleted from files, and what is refused."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from engine_support import log_end
from fluss_tiering.cli import put as put_module
from fluss_tiering.cli.row_files import csv_rows
from fluss_tiering.model.table import TablePath


def test_rows_are_put_and_deleted_by_key(command, client, table, orders):
    command("tables", "create", table, "--like", orders, "--primary-key", "id")
    assert "Upserted 3 rows" in command("put", table, orders).out
    assert log_end(client, TablePath.parse(table)) == 3
    for _ in range(2):
        # The second time, no such key is left.
        assert command("put", table, orders, "--delete").out == f"Sent 3 deletes to {table} by key.\n"
        assert log_end(client, TablePath.parse(table)) == 6


def test_csv_is_read_as_the_tables_types(command, client, table, tmp_path):
    command("tables", "create", table, "-c", "day DATE", "-c", "price DECIMAL(10, 2)", "-c", "note STRING")
    rows = tmp_path / "rows.csv"
    rows.write_text("day,price,note\n2026-01-31,1.50,NA\n2026-02-01,,x\n")
    assert "Appended 2 rows" in command("put", table, rows, "--null-value", "NA").out
    assert log_end(client, TablePath.parse(table)) == 2


def test_values_of_a_long_csv_file_may_have_several_lines(command, table, tmp_path, monkeypatch):
    command("tables", "create", table, "-c", "id INT", "-c", "note STRING")
    notes = {number: f"{'first ' * 100}{number}\n7,second" for number in range(3000)}
    rows = tmp_path / "rows.csv"
    monkeypatch.setattr(csv_rows, "READ", csv_rows.pa.csv.ReadOptions(use_threads=False, block_size=2**20))
    rows.write_text("id,note\n" + "".join(f'{number},"{note}"\n' for number, note in notes.items()))
    assert "Appended 3,000 rows" in command("put", table, rows).out
    lines = command("scan", table, "--format", "json").out.splitlines()
    assert {each["id"]: each["note"] for each in map(json.loads, lines)} == notes


def test_csv_has_bytes_in_hexadecimal(command, client, table, tmp_path):
    command("tables", "create", table, "-c", "mac BINARY(2)", "-c", "blob BYTES", "-c", "noon TIME(3)")
    rows = tmp_path / "rows.csv"
    rows.write_text('mac,blob,noon\n00FF,002c0aff,12:00:00.001\n,"",\n')
    assert "Appended 2 rows" in command("put", table, rows).out
    assert [json.loads(line) for line in command("scan", table, "--format", "json").out.splitlines()] == [
        {"mac": "00ff", "blob": "002c0aff", "noon": "12:00:00.001"},
        {"mac": None, "blob": "", "noon": None},
    ]
    for wrong, word in (("0", "hexadecimal"), ("xy", "hexadecimal"), ("00", "2 bytes")):
        rows.write_text(f"mac,blob,noon\n{wrong},,\n")
        assert command("put", table, rows).refuses(2, "rows.csv", "mac", word)


def test_wrong_type_in_a_put_is_named_and_writes_nothing(command, client, table, orders, tmp_path):
    command("tables", "create", table, "-c", "id BIGINT", "-c", "name BIGINT", "-c", "price DECIMAL(5, 2)")
    assert command("put", table, orders).refuses(2, "name", "BIGINT")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("id,name,price\n1,1,1\n1,1,1,1\n")
    assert command("put", table, wrong).refuses(2, "wrong.csv", "row 3: Expected 3 columns, got 4")

    assert log_end(client, TablePath.parse(table)) == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda rows: rows.drop_columns(["id"]), ("id",)),
        (lambda rows: rows.set_column(0, "id", pa.array([1, None, 3], pa.int64())), ("id", "null")),
        (lambda rows: rows.append_column("extra", pa.array([1, 2, 3])), ("extra",)),
    ],
    ids=["key column missing", "null in a key", "unknown column"],
)
def test_rows_that_do_not_fit_are_refused_whole(command, client, table, orders, tmp_path, changed, words):
    command("tables", "create", table, "--like", orders, "--primary-key", "id")
    path = tmp_path / "wrong.parquet"
    pa.parquet.write_table(changed(pa.parquet.read_table(orders)), path)
    assert command("put", table, path).refuses(2, "wrong.parquet", *words)
    assert log_end(client, TablePath.parse(table)) == 0


def test_a_text_that_means_null_is_refused_for_parquet_files(command, client, table, orders, tmp_path):
    refused = ("--null-value is about CSV files", "orders.parquet", "is a Parquet file: leave it out")
    assert command("tables", "create", table, "--like", orders, "--null-value", "NA").refuses(2, *refused)
    assert command("tables", "create", table, "--like", orders).code == 0
    assert command("put", table, orders, "--null-value", "NA").refuses(2, *refused)
    assert log_end(client, TablePath.parse(table)) == 0
    # It is used for the one CSV file.
    more = tmp_path / "more.csv"
    more.write_text("id,name,price\n4,NA,4\n")
    assert command("put", table, orders, more, "--null-value", "NA").code == 0
    assert "\n4,,4\n" in command("scan", table, "--format", "csv").out


def test_files_that_cannot_be_read_are_named(command, table, orders, tmp_path):
    command("tables", "create", table, "--like", orders)
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(orders.read_bytes()[:-20])
    assert command("put", table, torn).refuses(2, "torn.parquet")
    assert command("put", table, tmp_path / "none.parquet").refuses(2, "none.parquet")
    named_csv = tmp_path / "orders.csv"
    named_csv.write_bytes(orders.read_bytes())
    for answer in (command("put", table, named_csv), command("tables", "create", f"{table}2", "--like", named_csv)):
        assert answer.refuses(2, "orders.csv is a Parquet file: expected a name that ends with .parquet")
    (tmp_path / "rows.xml").touch()
    assert command("put", table, tmp_path / "rows.xml").refuses(2, "rows.xml", ".parquet")


def test_rows_come_from_standard_input(command, client, table, monkeypatch):  # D30
    command("tables", "create", table, "-c", "id BIGINT", "-c", "name STRING")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"id,name\n1,a\n2,b\n")))
    assert "Appended 2 rows" in command("put", table, "-").out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"id,name\nx,a\n")))
    said = "cannot read -: row 2, column 'id' (BIGINT): CSV conversion error to int64: invalid value 'x'"
    assert command("put", table, "-").refuses(2, said)
    monkeypatch.setattr("sys.stdin", None)
    assert command("put", table, "-").refuses(2, "cannot read -: the command was started without a standard input")
    assert log_end(client, TablePath.parse(table)) == 2


@pytest.mark.parametrize("key", [True, False])
def test_a_put_that_fails_midway_tells_what_it_has_written(command, client, table, tmp_path, key):
    command("tables", "create", table, "-c", "id BIGINT", *(["--primary-key", "id"] if key else []))
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("id\n1\n2\n")
    bad.write_text("id\n3\nx\n")
    failed = command("put", table, good, bad)
    assert failed.refuses(2, "bad.csv", "row 3", "2 rows of the files before bad.csv, and 0 rows of bad.csv itself")
    assert ("A repeat appends them once more" in failed.err) is not key
    assert log_end(client, TablePath.parse(table)) == 2
    assert "Before the error" not in command("put", table, bad).err


def test_a_file_that_is_none_is_told_once_and_before_a_row_is_written(command, client, table, orders, tmp_path):
    command("tables", "create", table, "--like", orders)
    for kind in ("csv", "parquet"):
        missing, folder = tmp_path / f"none.{kind}", tmp_path / f"folder.{kind}"
        folder.mkdir()
        refused = command("put", table, orders, missing)
        assert (refused.code, refused.err) == (2, f"error: there is no file {missing}: check the path\n")
        assert command("tables", "create", f"{table}_2", "--like", missing).err == refused.err
        refused = command("put", table, folder)
        assert (refused.code, refused.err) == (2, f"error: {folder} is a folder: expected a file\n")
    assert log_end(client, TablePath.parse(table)) == 0


def test_how_many_rows_are_written_is_shown(command, table, orders):  # E36
    command("tables", "create", table, "--like", orders)
    assert f"{orders.name}: 3 rows" in command("put", table, orders).err


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupt_tells_what_was_written(command, client, table, tmp_path, monkeypatch, after):
    """Ctrl-C comes after the answer to one of the requests. The file before it was written as a whole."""
    command("tables", "create", table, "-c", "id BIGINT")
    for name in ("first.csv", "second.csv"):
        (tmp_path / name).write_text("id\n1\n2\n3\n")
    update, answers = put_module.Progress.update, iter(range(after))

    def interrupted(progress, *arguments, **changed):
        update(progress, *arguments, **changed)
        if next(answers, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(put_module.Progress, "update", interrupted)
    if after == 2:
        assert command("put", table, tmp_path / "first.csv", tmp_path / "second.csv").code == 0
        return
    ended = command("put", table, tmp_path / "first.csv", tmp_path / "second.csv")
    assert ended.code == 130
    of_before, of_file, name = [("0 rows", "3 rows", "first.csv"), ("3 rows", "3 rows", "second.csv")][after]
    told = f"at least {of_before} of the files before {name}, and {of_file} of {name} itself, were written. A repeat "
    assert told in " ".join(ended.err.split())
    assert log_end(client, TablePath.parse(table)) == 3 * (after + 1)
