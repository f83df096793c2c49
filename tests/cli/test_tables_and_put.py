"""Tables made from files or columns, rows put and deleted from files, and what is refused."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest

from fluss_tiering.cli import put as put_module
from fluss_tiering.cli.row_files import csv_rows, files
from fluss_tiering.model.table import TablePath

ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "name": ["a", "b", None],
        "price": pa.array([1, 2, 3]).cast(pa.decimal128(20, 0)),
    }
)


@pytest.fixture
def orders(tmp_path):
    path = tmp_path / "orders.parquet"
    pa.parquet.write_table(ORDERS, path)
    return path


def log_end(client, table):
    path = TablePath.parse(table)
    return sum(bucket.log_end_offset for bucket in client.list_buckets([path])[path])


def test_table_like_a_file_takes_its_columns_and_options(command, client, table, orders):
    answer = command("tables", "create", table, "--like", orders, "--primary-key", "id", "--buckets", 3, "-p", "a.b=c")
    assert answer.code == 0
    (described,) = json.loads(command("tables", "describe", table, "--json").out)
    assert described["columns"] == [
        {"name": "id", "type": "BIGINT NOT NULL"},
        {"name": "name", "type": "STRING"},
        {"name": "price", "type": "DECIMAL(20, 0)"},
    ]
    assert described["primary_key"] == described["bucket_keys"] == ["id"]
    assert described["num_buckets"] == 3
    assert described["properties"] == {
        "a.b": "c",
        "table.datalake.enabled": "true",
        "table.datalake.freshness": "3min",
    }


def test_rows_are_put_and_deleted_by_key(command, client, table, orders):
    command("tables", "create", table, "--like", orders, "--primary-key", "id")
    assert "Upserted 3 rows" in command("put", table, orders).out
    assert log_end(client, table) == 3
    for _ in range(2):
        # The second time, no such key is left.
        assert command("put", table, orders, "--delete").out == f"Sent 3 deletes to {table} by key.\n"
        assert log_end(client, table) == 6


def test_a_partitioned_table_shows_its_partitions_and_drops_them(command, client, table, tmp_path):
    columns = ("-c", "id INT", "-c", "day STRING", "-c", "code CHAR(2)")
    command(
        "tables",
        "create",
        table,
        *columns,
        "--primary-key",
        "id,day,code",
        "--partition-key",
        "day",
        "--bucket-key",
        "id",
    )
    rows = tmp_path / "rows.csv"
    rows.write_text("id,day,code\n1,mon,a\n2,tue,b\n")
    assert "Upserted 2 rows" in command("put", table, rows).out
    (described,) = json.loads(command("tables", "describe", table, "--json").out)
    assert described["partition_keys"] == ["day"]
    assert described["columns"][2] == {"name": "code", "type": "CHAR(2) NOT NULL"}
    assert "mon" in command("tables", "describe", table).out
    scanned = [json.loads(line) for line in command("scan", table, "--format", "json").out.splitlines()]
    assert sorted((row["id"], row["day"], row["code"]) for row in scanned) == [(1, "mon", "a"), (2, "tue", "b")]
    # E6
    assert command("tables", "drop-partition", table, "mon").refuses(1, "mon", "1 log record that is not", "--drop-unt")
    assert command("history", table).err == ""
    dropped = command("tables", "drop-partition", table, "mon", "--drop-untiered").out
    assert dropped == f"Dropped partition mon of {table}, with 1 log record that never came into the lake.\n"
    for shown in (command("history", table), command("status", table)):
        assert "1 log record never came into the lake, because a partition was dropped first" in " ".join(
            shown.err.split()
        )
    assert f"Log records of {table} never came into the lake" in " ".join(command("status").err.split())  # E38
    (told,) = json.loads(command("status", table, "--json").out)
    assert told["dropped_untiered_records"] == 1
    assert command("tables", "drop-partition", table, "mon").refuses(1, "mon")
    assert command("tables", "drop-partition", table, "mon", "--if-exists").code == 0
    path = TablePath.parse(table)
    assert {info.partition_values for info in client.list_buckets([path])[path]} == {("tue",)}
    rows.write_text("id,day,code\n1,a/b,a\n")
    assert command("put", table, rows).refuses(2, "a/b")


def test_csv_is_read_as_the_tables_types(command, client, table, tmp_path):
    command("tables", "create", table, "-c", "day DATE", "-c", "price DECIMAL(10, 2)", "-c", "note STRING")
    rows = tmp_path / "rows.csv"
    rows.write_text("day,price,note\n2026-01-31,1.50,NA\n2026-02-01,,x\n")
    assert "Appended 2 rows" in command("put", table, rows, "--null-value", "NA").out
    assert log_end(client, table) == 2


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


def test_column_names_that_are_not_utf8_are_refused(command, client, table, tmp_path):
    rows = tmp_path / "latin.csv"
    rows.write_bytes(b"id,\xff\xfe\n1,2\n")
    assert command("tables", "create", table, "--like", rows).refuses(2, "latin.csv", "not UTF-8")
    command("tables", "create", table, "-c", "id BIGINT", "-c", "name STRING")
    assert command("put", table, rows).refuses(2, "latin.csv", "not UTF-8")
    assert log_end(client, table) == 0


def test_lists_show_the_table(command, table, orders):
    command("tables", "create", table, "--like", orders)
    assert table in command("tables", "list").out
    assert table in {
        f"{each['database_name']}.{each['table_name']}" for each in json.loads(command("tables", "list", "--json").out)
    }
    assert command("tables", "drop", table).code == 0
    assert table not in command("tables", "list").out


def test_a_name_in_backticks_is_the_name(command, client, table):
    named = ["-c", "`unit price` DOUBLE", "-c", "`select` STRING NOT NULL", "-c", "`a``b`INT", "-c", "plain BIGINT"]
    assert command("tables", "create", table, *named).code == 0
    (created,) = client.get_tables([TablePath.parse(table)])
    types = {column.name: str(column.data_type) for column in created.descriptor.columns}
    assert types == {"unit price": "DOUBLE", "select": "STRING NOT NULL", "a`b": "INT", "plain": "BIGINT"}
    assert command("tables", "create", f"{table}_2", "-c", "`open INT").refuses(2, "`open INT")
    assert command("tables", "create", f"{table}_2", "-c", "`id`").refuses(2, "NAME TYPE")


def test_unknown_table_is_named(command, orders):
    assert command("put", "cli.nowhere", orders).refuses(1, "cli.nowhere", "does not exist")
    assert command("tables", "describe", "cli.nowhere").refuses(1, "cli.nowhere")
    assert command("tables", "drop", "cli.nowhere").refuses(1, "cli.nowhere")
    assert command("tables", "drop", "cli.nowhere", "--if-exists").code == 0


def test_table_that_exists_is_refused(command, table, orders):
    command("tables", "create", table, "--like", orders)
    assert command("tables", "create", table, "--like", orders).refuses(1, table, "exists")
    again = command("tables", "create", table, "--like", orders, "--if-not-exists")  # E38
    assert (again.code, again.out, again.err) == (0, f"{table} existed already, and was left as it is.\n", "")


def test_wrong_type_in_a_put_is_named_and_writes_nothing(command, client, table, orders, tmp_path):
    command("tables", "create", table, "-c", "id BIGINT", "-c", "name BIGINT", "-c", "price DECIMAL(5, 2)")
    assert command("put", table, orders).refuses(2, "name", "BIGINT")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("id,name,price\n1,1,1\nx,1,1\n")
    assert command("put", table, wrong).refuses(2, "wrong.csv", "line 3, column 'id' (BIGINT): ", "'x'")
    wrong.write_text("id,name,price\n1,1,1\n1,1,1,1\n")
    assert command("put", table, wrong).refuses(2, "wrong.csv", "line 3: Expected 3 columns, got 4")
    wrong.write_text("id,name,price\n1,1,1234.5\n")
    assert command("put", table, wrong).refuses(
        2, "line 2, column 'price' (DECIMAL(5, 2)): ", "too many digits: '1234.50'"
    )
    assert log_end(client, table) == 0


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (ORDERS.drop_columns(["id"]), ("id",)),
        (ORDERS.set_column(0, "id", pa.array([1, None, 3], pa.int64())), ("id", "null")),
        (ORDERS.append_column("extra", pa.array([1, 2, 3])), ("extra",)),
    ],
    ids=["key column missing", "null in a key", "unknown column"],
)
def test_rows_that_do_not_fit_are_refused_whole(command, client, table, orders, tmp_path, rows, words):
    command("tables", "create", table, "--like", orders, "--primary-key", "id")
    path = tmp_path / "wrong.parquet"
    pa.parquet.write_table(rows, path)
    assert command("put", table, path).refuses(2, "wrong.parquet", *words)
    assert log_end(client, table) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-c", "id"], ("'id'", "NAME TYPE")),
        (["-c", "id MAGIC"], ("MAGIC", "BIGINT")),
        (["-c", "id ARRAY<INT"], ("--column 'id ARRAY<INT'", "its bracket '<' is not closed: expected '>'")),
        (["-c", "my id INT"], ("--column 'my id INT'", "The first blank ends the name", "as in '`unit price` DOUBLE'")),
        (["-c", "id BIGINT", "-p", "nothing"], ("nothing", "KEY=VALUE")),
        (["-c", "id BIGINT", "--primary-key", "other"], ("other",)),
        (["-c", "a INT", "-c", "b INT", "--primary-key", "a,b"], ("bucket",)),
        (["-c", "id BIGINT", "-p", "=1"], ("'=1'", "KEY=VALUE")),
        (["-c", "id BIGINT", "--primary-key", ""], ("--primary-key is empty",)),
        (["-c", "id BIGINT", "--primary-key", "id,"], ("--primary-key 'id,'",)),
        (["-c", "id BIGINT", "--bucket-key", ""], ("--bucket-key is empty",)),
        (["-c", "id BIGINT", "--partition-key", " "], ("--partition-key ' '",)),
        (["-c", "id BIGINT", "--freshness", "soon"], ("soon", "ns, µs, ms, s, min, h, d")),
        (["-c", "id BIGINT", "-p", "a=1", "-p", "b=1", "-p", "a=2"], ("--property sets 'a' twice, to '1' and to '2'",)),
        (
            ["-c", "id BIGINT", "--freshness", "3min", "-p", "table.datalake.freshness=1h"],
            ("freshness is given twice",),
        ),
        (["-c", "id BIGINT", "--null-value", "NA"], ("--null-value is about the file of --like",)),
        (["--like", ""], ("expected a Parquet or a CSV file",)),
        ([], ("--like", "--column")),
    ],
)
def test_definitions_that_cannot_be_are_refused(command, client, table, arguments, words):
    assert command("tables", "create", table, *arguments).refuses(2, *words)
    assert TablePath.parse(table) not in {each.path for each in client.list_tables()}


def test_a_text_that_means_null_is_refused_for_parquet_files(command, client, table, orders, tmp_path):
    refused = ("--null-value is about CSV files", "orders.parquet", "is a Parquet file: leave it out")
    assert command("tables", "create", table, "--like", orders, "--null-value", "NA").refuses(2, *refused)
    assert command("tables", "create", table, "--like", orders).code == 0
    assert command("put", table, orders, "--null-value", "NA").refuses(2, *refused)
    assert log_end(client, table) == 0
    # It is used for the one CSV file.
    more = tmp_path / "more.csv"
    more.write_text("id,name,price\n4,NA,4\n")
    assert command("put", table, orders, more, "--null-value", "NA").code == 0
    assert "\n4,,4\n" in command("scan", table, "--format", "csv").out


def test_names_with_blanks_are_shown_in_quotes_and_found(command, table, tmp_path):
    path = tmp_path / "blanks.csv"
    path.write_text(" a ,b c,d\n1,2,3\n")
    assert command("tables", "create", table, "--like", path).code == 0
    assert "' a '" in command("tables", "describe", table).out
    assert command("put", table, path).code == 0
    assert command("scan", table, "--format", "csv", "--columns", "b c, a ,d").out == '"b c"," a ","d"\n2,1,3\n'
    assert command("scan", table, "--columns", "e").refuses(2, "no column 'e': expected some of ' a ', 'b c', d")


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
    said = "cannot read -: line 2, column 'id' (BIGINT): CSV conversion error to int64: invalid value 'x'"
    assert command("put", table, "-").refuses(2, said)
    monkeypatch.setattr("sys.stdin", None)
    assert command("put", table, "-").refuses(2, "cannot read -: the command was started without a standard input")
    assert log_end(client, table) == 2


def test_what_did_not_happen_is_not_told(command, table):  # D30
    command("tables", "create", table, "-c", "id BIGINT", "-c", "day STRING", "--partition-key", "day")
    assert "nothing was dropped" in command("tables", "drop-partition", table, "mon", "--if-exists").out
    assert f"Dropped {table}." in command("tables", "drop", table, "--if-exists").out
    assert f"no table {table}: nothing was dropped" in command("tables", "drop", table, "--if-exists").out
    assert command("tables", "drop-partition", table, "mon", "--if-exists").refuses(1, "does not exist")


def test_an_alteration_of_nothing_says_what_is_missing(command, table):  # D30
    command("tables", "create", table, "-c", "id BIGINT")
    assert command("tables", "alter", table).refuses(2, "nothing to change", "--set KEY=VALUE", "--reset KEY")
    twice = ("--set", "a.b=1", "--set", "a.b=2")
    assert command("tables", "alter", table, *twice).refuses(2, "--set sets 'a.b' twice")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pending", "db.a", "db.b"], ("--pending tiers every pending table", "db.a, db.b")),
        ([], ("nothing to tier", "--pending")),
        (["--drain", "--pending"], ("--drain", "leave out --pending")),
    ],
)
def test_each_mistake_of_tier_has_its_own_message(command, arguments, words):  # D30
    assert command("tier", *arguments).refuses(2, *words)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("table.datalake.foo=1", "table.datalake.format"),
        ("table.magic=1", None),
        ("table.datalake.freshnes=1min", "table.datalake.freshness"),
        ("table.log.arrow.compresion.type=LZ4_FRAME", "table.log.arrow.compression.type"),
        ("datalake.freshness=1min", "table.datalake.freshness"),
        ("freshness=1min", "table.datalake.freshness"),
        ("Table.Datalake.Enabled=true", "table.datalake.enabled"),
        ("table.datalake.max_round_duration=1min", "table.datalake.max-round-duration"),
        ("tabel.datalake.enabled=true", "table.datalake.enabled"),
        ("table.log.ttl=1d", None),
        ("table.datalake.table=x", "table.datalake.enabled or table.datalake.table-name"),
    ],
)
def test_unknown_options_are_refused_with_what_was_meant(command, client, table, option, meant):  # D25
    place = "the documentation lists on its page Configuration under Tables"
    hint = (f"did you mean {meant}?" if meant else "is no option of tables: expected one of those", place)
    assert command("tables", "create", table, "-c", "id BIGINT", "-p", option).refuses(2, *hint)
    assert TablePath.parse(table) not in {each.path for each in client.list_tables()}
    command("tables", "create", table, "-c", "id BIGINT")
    assert command("tables", "alter", table, "--set", option).refuses(2, *hint)
    assert command("tables", "alter", table, "--reset", option.partition("=")[0]).refuses(2, *hint)


def test_custom_properties_and_properties_of_the_lake_are_kept(command, table):  # D25
    kept = {"nope": "1", "owner.team": "a", "iceberg.write.x": "1", "table.datalake.iceberg.io-impl": "x"}
    options = [text for key, value in kept.items() for text in ("-p", f"{key}={value}")]
    assert command("tables", "create", table, "-c", "id BIGINT", *options).code == 0
    assert command("tables", "alter", table, "--set", "nope=2", "--reset", "owner.team").code == 0
    (described,) = json.loads(command("tables", "describe", table, "--json").out)
    assert kept.items() - described["properties"].items() == {("nope", "1"), ("owner.team", "a")}
    assert command("tables", "alter", table, "--set", "table.datalake.format=paimon").refuses(2, "ICEBERG")


def test_secrets_of_options_are_never_shown(command, client, table):  # E24
    secrets = {
        "table.datalake.iceberg.jdbc.password": "hunter2",
        "table.datalake.iceberg.s3.secret-access-key": "hunter2",
        "table.datalake.iceberg.header.Authorization": "Basic aHVudGVyMg hunter2",
        "table.datalake.iceberg.adls.connection-string.lake": "AccountName=lake;AccountKey=hunter2",
        "table.datalake.iceberg.uri": "jdbc:postgresql://lake:hunter2@db/catalog",
        "table.datalake.iceberg.warehouse": "s3://lake:hunter2@bucket/lake",
        "my.api-key": "hunter2",
    }
    options = [text for key, value in secrets.items() for text in ("-p", f"{key}={value}")]
    assert command("tables", "create", table, "-c", "id BIGINT", *options, "-p", "owner.team=a").code == 0
    shown = [
        command("tables", "describe", table),
        command("tables", "describe", table, "--json"),
        command("tables", "list", "--json"),
        command("tables", "alter", table, "--set", "my.password=hunter2"),
        command("tables", "alter", table, "--set", "my.password=hunter2", "--set", "my.password=hunter22"),
    ]
    for answer in shown:
        assert "hunter2" not in answer.out + answer.err
    (described,) = json.loads(shown[1].out)
    assert described["properties"]["my.api-key"] == "***"
    assert described["properties"]["table.datalake.iceberg.uri"] == "jdbc:postgresql://lake:***@db/catalog"
    assert described["properties"]["owner.team"] == "a"
    assert client.get_tables([TablePath.parse(table)])[0].descriptor.properties["my.api-key"] == "hunter2"


@pytest.mark.parametrize("key", ["iceberg.x", "absent", "table.datalake.max-round-duration"])
def test_only_an_option_that_is_set_is_reset(command, client, table, key):
    command("tables", "create", table, "-c", "id BIGINT", "-p", "owner.team=a")
    before = client.get_tables([TablePath.parse(table)])
    answer = command("tables", "alter", table, "--set", "team=b", "--reset", "owner.team", "--reset", key)
    assert answer.refuses(2, f"--reset '{key}': {table} does not set this option", "owner.team, table.datalake.enabled")
    assert client.get_tables([TablePath.parse(table)]) == before


@pytest.mark.parametrize("if_exists", [[], ["--if-exists"]])
def test_a_partition_of_a_table_without_partitions_is_no_slip(command, table, if_exists):
    command("tables", "create", table, "-c", "id BIGINT")
    answer = command("tables", "drop-partition", table, "mon", *if_exists)
    assert answer.refuses(2, f"{table} has no partition columns", f"`fluss-tiering tables drop {table}`")
    command("tables", "drop", table)
    columns = [text for name in ("id BIGINT", "day STRING", "shop STRING") for text in ("-c", name)]
    command("tables", "create", table, *columns, "--partition-key", "day,shop")
    answer = command("tables", "drop-partition", table, "mon", *if_exists)
    assert answer.refuses(2, f"'mon' names no partition of {table}", "in this order: day, shop")
    answer = command("tables", "drop-partition", table, "mon", "shop=a", *if_exists)  # E38
    assert answer.refuses(2, "'shop=a' names no partition", "give the value alone, without shop=")


@pytest.mark.parametrize("right", ["3minutes", "3 Min", "180s", "180000 milliseconds"])
def test_each_spelling_of_a_freshness_that_fluss_knows_is_taken(command, client, table, right):
    assert command("tables", "create", table, "-c", "id BIGINT", "--freshness", right).code == 0
    (status,) = client.list_tiering_statuses(TablePath.parse(table))
    assert status.freshness_ms == 180_000


@pytest.mark.parametrize("wrong", ["3", "minutes", "three minutes", "3 weeks", "1.5h", "-3min"])
def test_a_freshness_that_is_no_duration_is_refused_with_what_is_one(command, table, wrong):
    answer = command("tables", "create", table, "-c", "id BIGINT", "--freshness", wrong)
    assert answer.refuses(
        2, f"table.datalake.freshness: '{wrong}' is not a duration", "ms, s, min, h, d", "3min or 3 minutes"
    )


def test_an_empty_path_is_not_the_present_folder(command):
    assert command("serve", "--data-dir", "").refuses(2, "--data-dir is empty")


@pytest.mark.parametrize("key", [True, False])
def test_a_put_that_fails_midway_tells_what_it_has_written(command, client, table, tmp_path, key):
    command("tables", "create", table, "-c", "id BIGINT", *(["--primary-key", "id"] if key else []))
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("id\n1\n2\n")
    bad.write_text("id\n3\nx\n")
    failed = command("put", table, good, bad)
    assert failed.refuses(2, "bad.csv", "line 3", "2 rows of the files before bad.csv, and 0 rows of bad.csv itself")
    assert ("A repeat appends them once more" in failed.err) is not key
    assert log_end(client, table) == 2
    assert "Before the error" not in command("put", table, bad).err


@pytest.mark.parametrize("name", ["none.csv", "none.parquet"])
def test_a_file_that_is_missing_is_told_once_and_before_a_row_is_written(
    command, client, table, orders, tmp_path, name
):
    command("tables", "create", table, "--like", orders)
    refused = command("put", table, orders, tmp_path / name)
    assert refused.refuses(2)
    assert refused.err == f"error: there is no file {tmp_path / name}: check the path\n"
    assert log_end(client, table) == 0
    assert command("tables", "create", f"{table}_2", "--like", tmp_path / name).err == refused.err


@pytest.mark.parametrize("name", ["folder.csv", "folder.parquet"])
def test_a_folder_is_no_file_of_rows(command, table, orders, tmp_path, name):
    (tmp_path / name).mkdir()
    command("tables", "create", table, "--like", orders)
    refused = command("put", table, tmp_path / name)
    assert refused.code == 2
    assert refused.err == f"error: {tmp_path / name} is a folder: expected a file\n"


@pytest.mark.system
def test_the_bar_has_a_total_if_the_size_is_known(command, server, table, orders, tmp_path, monkeypatch):  # E36
    texts = tmp_path / "orders.csv"
    texts.write_text('id,name,price\n4,d,4\n5,"two\nlines",5')
    command("tables", "create", table, "--like", orders)
    for file, rows in ((texts, 2), (orders, 3)):
        shown = command("put", table, file)
        assert f"{rows} of {rows} rows" in shown.err
        assert "━" in shown.err
    assert [files.row_count(each) for each in (texts, orders)] == [3, 3], "a line is about a row"
    told = put_module._Rows().render(SimpleNamespace(completed=1, total=3, fields={"guessed": True}))
    assert str(told) == "1 of about 3 rows"
    with texts.open("rb") as source:
        program = Path(sys.executable).with_name("fluss-tiering")
        piped = subprocess.run(
            [program, "put", table, "-", "--server", server.target],
            stdin=source,
            capture_output=True,
            text=True,
            check=True,
        )
    assert "2 rows " in piped.stderr
    assert not re.search("[━╸]|\\?", piped.stderr)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupt_tells_what_was_written(command, client, table, tmp_path, monkeypatch, after):
    """Ctrl-C comes after the answer to one of the requests. The file before it was written as a whole."""
    command("tables", "create", table, "-c", "id BIGINT")
    for name in ("first.csv", "second.csv"):
        (tmp_path / name).write_text("id\n1\n2\n3\n")
    advance, answers = put_module.Progress.advance, iter(range(after))

    def interrupted(progress, *arguments):
        advance(progress, *arguments)
        if next(answers, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(put_module.Progress, "advance", interrupted)
    if after == 2:
        assert command("put", table, tmp_path / "first.csv", tmp_path / "second.csv").code == 0
        return
    ended = command("put", table, tmp_path / "first.csv", tmp_path / "second.csv")
    assert ended.code == 130
    of_before, of_file, name = [("0 rows", "3 rows", "first.csv"), ("3 rows", "3 rows", "second.csv")][after]
    told = f"at least {of_before} of the files before {name}, and {of_file} of {name} itself, were written. A repeat "
    assert told in " ".join(ended.err.split())
    assert log_end(client, table) == 3 * (after + 1)


def test_a_mistyped_table_is_told_with_the_nearest_name(command, client, tmp_path):  # E37
    assert command("tables", "create", "near.customer_orders", "-c", "id BIGINT").code == 0
    rows = tmp_path / "rows.csv"
    rows.write_text("id\n1\n")
    wrong = "near.custmer_orders"
    for arguments in (
        ("status", wrong),
        ("tables", "describe", wrong),
        ("tables", "drop", wrong),
        ("put", wrong, rows),
        ("scan", wrong),
        ("verify", wrong),
        ("lake-conf", wrong),
        ("history", wrong),
        ("tier", wrong),
    ):
        assert command(*arguments).refuses(1, f"{wrong} does not exist", "Did you mean near.customer_orders?")
    answer = command("status", "elsewhere.payments")
    assert answer.code == 1
    assert "Did you mean" not in answer.err
