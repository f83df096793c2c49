"""Tables made from files or columns, changed and dropped, and what is refused."""

from __future__ import annotations

import json

import pytest

from cases import cases
from engine_support import log_end
from fluss_tiering.model.table import TablePath


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
        "table.datalake.layout": "clean",
    }


def test_a_partitioned_table_shows_its_partitions_and_drops_them(command, client, table, tmp_path):
    columns = ("-c", "id INT", "-c", "day STRING", "-c", "code CHAR(2)")
    keys = ("--primary-key", "id,day,code", "--partition-key", "day", "--bucket-key", "id")
    command("tables", "create", table, *columns, *keys)
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


def test_column_names_that_are_not_utf8_are_refused(command, client, table, tmp_path):
    rows = tmp_path / "latin.csv"
    rows.write_bytes(b"id,\xff\xfe\n1,2\n")
    assert command("tables", "create", table, "--like", rows).refuses(2, "latin.csv", "not UTF-8")
    command("tables", "create", table, "-c", "id BIGINT", "-c", "name STRING")
    assert command("put", table, rows).refuses(2, "latin.csv", "not UTF-8")
    assert log_end(client, TablePath.parse(table)) == 0


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


def test_table_that_exists_is_refused(command, table, orders):
    command("tables", "create", table, "--like", orders)
    assert command("tables", "create", table, "--like", orders).refuses(1, table, "exists")
    again = command("tables", "create", table, "--like", orders, "--if-not-exists")  # E38
    assert (again.code, again.out, again.err) == (0, f"{table} existed already, and was left as it is.\n", "")


@cases(
    ("arguments", "words"),
    [
        (["-c", "id"], ("'id'", "NAME TYPE")),
        (["-c", "id MAGIC"], ("MAGIC", "BIGINT")),
        (["-c", "id ARRAY<INT"], ("--column 'id ARRAY<INT'", "its bracket '<' is not closed: expected '>'")),
        (["-c", "my id INT"], ("--column 'my id INT'", "The first blank ends the name", "as in '`unit price` DOUBLE'")),
        (["-c", "id BIGINT", "-p", "nothing"], ("nothing", "KEY=VALUE")),
        (["-c", "id BIGINT", "--primary-key", "other"], ("other",)),
        (
            ["-c", "a INT", "-c", "b INT", "--primary-key", "a,b", "-p", "table.datalake.layout=legacy"],
            ("--bucket-key",),
        ),
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


def test_names_with_blanks_are_shown_in_quotes_and_found(command, table, tmp_path):
    path = tmp_path / "blanks.csv"
    path.write_text(" a ,b c,d\n1,2,3\n")
    assert command("tables", "create", table, "--like", path).code == 0
    assert "' a '" in command("tables", "describe", table).out
    assert command("put", table, path).code == 0
    assert command("scan", table, "--format", "csv", "--columns", "b c, a ,d").out == '"b c"," a ","d"\n2,1,3\n'
    assert command("scan", table, "--columns", "e").refuses(2, "no column 'e': expected some of ' a ', 'b c', d")


def test_what_did_not_happen_is_not_told(command, table):  # D30
    command("tables", "create", table, "-c", "id BIGINT", "-c", "day STRING", "--partition-key", "day")
    assert "nothing was dropped" in command("tables", "drop-partition", table, "mon", "--if-exists").out
    assert f"Dropped {table}." in command("tables", "drop", table, "--if-exists").out
    assert f"no table {table}: nothing was dropped" in command("tables", "drop", table, "--if-exists").out
    assert command("tables", "drop-partition", table, "mon", "--if-exists").refuses(1, "does not exist")


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
        ("table.datalake.table=x", "table.datalake.table-name"),
    ],
)
def test_unknown_options_are_refused_with_what_was_meant(command, client, table, option, meant):  # D25
    place = "the documentation lists on its page Configuration under Tables"
    hint = (f"did you mean {meant}?" if meant else "is not a table option: expected one of those", place)
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


def test_an_empty_path_is_not_the_present_folder(command):
    assert command("serve", "--data-dir", "").refuses(2, "--data-dir is empty")


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
    assert command("status", "nowhere").refuses(2, "nowhere")
    answer = command("status", "elsewhere.payments")
    assert answer.code == 1
    assert "Did you mean" not in answer.err
