"""The settings with which others read a lake table. PyIceberg itself takes them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from fluss_tiering.cli.lake.lake_conf import _pyiceberg, _spark, duckdb_sql
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import nothing_tiered
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath
from judges import _duckdb


def test_spark_gets_arguments(command, table):  # D30
    command("tables", "create", table, "-c", "id BIGINT", "-p", "table.datalake.iceberg.x=with space")
    printed = command("lake-conf", table)
    assert "eval" in printed.err
    arguments = shlex.split(printed.out)
    settings = dict(each.split("=", 1) for each in arguments[1::2])
    assert set(arguments[::2]) == {"--conf"}
    assert settings["spark.sql.catalog.fluss_lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert settings["spark.sql.catalog.fluss_lake.type"] == "jdbc"
    assert settings["spark.sql.extensions"].endswith(".IcebergSparkSessionExtensions")
    assert settings["spark.sql.catalog.fluss_lake.x"] == "with space"
    assert any(key.startswith("spark.jars") for key in settings)
    assert command("lake-conf", "cli.nowhere").refuses(1, "cli.nowhere")


def test_arguments_that_a_shell_takes_as_they_are_need_no_hint(command, client, table):
    command("tables", "create", table, "-c", "id BIGINT")
    printed = command("lake-conf", table)
    assert printed.out.split() == shlex.split(printed.out)
    (warning,) = printed.err.splitlines()
    (info,) = client.get_tables([TablePath.parse(table)])
    assert warning == f"warning: {table}: {nothing_tiered(info).message}"


def test_pyiceberg_opens_the_catalog(command, table, tmp_path: Path, monkeypatch):  # D30
    command("tables", "create", table, "-c", "id BIGINT", "-p", "table.datalake.iceberg.x=it's")
    (tmp_path / ".pyiceberg.yaml").write_text(command("lake-conf", table, "--for", "pyiceberg").out)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    properties = Config().get_catalog_config("fluss_lake")
    assert properties["x"] == "it's"
    catalog = load_catalog("fluss_lake", **properties)
    catalog.create_namespace_if_not_exists("made_by_pyiceberg")
    made = catalog.create_table(f"made_by_pyiceberg.{table.replace('.', '_')}", pa.schema([("id", pa.int64())]))
    assert made.location().startswith(properties["warehouse"])


def test_equality_deletes_are_told_to_those_who_use_pyiceberg(command, table):
    command(
        *("tables", "create", table, "-c", "id BIGINT", "--primary-key", "id"),
        *("-p", "table.datalake.delete-files=Equality"),
    )
    assert "PyIceberg does not read" in command("lake-conf", table, "--for", "pyiceberg").err
    assert "PyIceberg" not in command("lake-conf", table).err
    command("tables", "alter", table, "--set", "table.datalake.delete-files=position")
    assert "PyIceberg" not in command("lake-conf", table, "--for", "pyiceberg").err


def test_other_catalogs_are_named_as_pyiceberg_names_them():  # D30
    rest = {"type": "rest", "uri": "http://rest:8181", "warehouse": "w"}
    assert _pyiceberg(rest) == rest
    postgresql = {"type": "jdbc", "uri": "jdbc:postgresql://db:5432/lake", "jdbc.user": "u", "jdbc.password": "p"}
    assert _pyiceberg(postgresql) == {"type": "sql", "uri": "postgresql+psycopg2://u:p@db:5432/lake"}
    odd = _pyiceberg({**postgresql, "jdbc.user": "u@corp", "jdbc.password": "p@ss/w:rd%"})
    assert odd["uri"] == "postgresql+psycopg2://u%40corp:p%40ss%2Fw%3Ard%25@db:5432/lake"
    with pytest.raises(FlussTieringError, match="jdbc:mysql"):
        _pyiceberg({"type": "jdbc", "uri": "jdbc:mysql://db/lake"})


def test_the_arguments_of_spark_are_in_order():
    properties = {"warehouse": "w", "type": "rest", "uri": "http://rest:8181"}
    of_catalog = [key for key in _spark("lake", properties) if key.startswith("spark.sql.catalog.lake.")]
    assert [key.rpartition(".")[2] for key in of_catalog] == ["type", "uri", "warehouse"]


def in_catalog(**properties: str) -> TableInfo:
    """A table whose lake catalog has these properties."""
    descriptor = TableDescriptor(columns=(Column("id", DataType.parse("BIGINT")),))
    return TableInfo(
        path=TablePath("shop", "orders"),
        table_id=1,
        schema_id=1,
        descriptor=descriptor,
        created_time=0,
        lake_catalog_properties=properties,
    )


def statements(sql: str) -> list[str]:
    """Statements, as DuckDB itself splits and parses them."""
    return [each.query.strip().removesuffix(";") for each in duckdb.extract_statements(sql)]


def test_the_folder_of_a_lake_table_is_described_once_it_is_there(command, client, table, monkeypatch):
    command("tables", "create", table, "-c", "id BIGINT")
    place = f"{table} in the lake catalog fluss_lake (jdbc)"
    none_yet = f"Lake table: none yet. The first round makes {place}"
    command("tables", "alter", table, "--set", "table.datalake.enabled=false")
    assert f"{none_yet}, once table.datalake.enabled is true." in command("tables", "describe", table).out
    command("tables", "alter", table, "--set", "table.datalake.enabled=true")
    assert f"{none_yet}." in command("tables", "describe", table).out
    (described,) = json.loads(command("tables", "describe", table, "--json").out)
    database, _, name = table.partition(".")
    assert described["lake_table"] == {
        "catalog": "fluss_lake",
        "database_name": database,
        "table_name": name,
        "location": None,
    }
    made = made_by_pyiceberg(command, table).location()
    assert f"in the folder {made}." in command("tables", "describe", table).out
    (described,) = json.loads(command("tables", "describe", table, "--json").out)
    assert described["lake_table"]["location"] == made


def made_by_pyiceberg(command, table: str) -> Table:
    """Make the lake table of a table with PyIceberg."""
    lines = command("lake-conf", table, "--for", "pyiceberg").out.splitlines()[2:]
    properties = {key.strip(): value.strip().strip("'") for key, _, value in (each.partition(":") for each in lines)}
    catalog = load_catalog("fluss_lake", **properties)
    catalog.create_namespace_if_not_exists(table.partition(".")[0])
    return catalog.create_table(table, pa.schema([("id", pa.int64())]))


def test_duckdb_attaches_a_rest_catalog():
    table = in_catalog(type="rest", uri="http://rest:8181/", warehouse="it's", name="lake")
    (attach,) = statements(duckdb_sql(table))
    options = "TYPE iceberg, ENDPOINT 'http://rest:8181', AUTHORIZATION_TYPE 'none'"
    assert attach.startswith(f"ATTACH 'it''s' AS \"lake\" ({options})")


@pytest.mark.parametrize(
    ("properties", "secret"),
    [
        ({"token": "t"}, "TOKEN 't'"),
        (
            {"credential": "me:p:w"},
            "CLIENT_ID 'me:p', CLIENT_SECRET 'w', OAUTH2_SERVER_URI 'http://rest:8181/v1/oauth/tokens'",
        ),
        ({"credential": "w", "oauth2-server-uri": "http://o"}, "CLIENT_SECRET 'w', OAUTH2_SERVER_URI 'http://o'"),
    ],
)
def test_duckdb_gets_the_credentials_of_a_rest_catalog(properties, secret):
    sql = duckdb_sql(in_catalog(type="rest", uri="http://rest:8181", warehouse="w", **properties))
    assert f"CREATE OR REPLACE SECRET fluss_lake_secret (TYPE iceberg, {secret})" in statements(sql)
    assert "SECRET fluss_lake_secret)" in sql


def test_another_catalog_says_how_duckdb_finds_the_metadata_file():
    table = in_catalog(type="jdbc", uri="jdbc:postgresql://db/lake", name="it's")
    with pytest.raises(FlussTieringError, match="catalog_name = 'it''s' AND table_namespace = 'shop'"):
        duckdb_sql(table)
    with pytest.raises(FlussTieringError, match="iceberg_scan"):
        duckdb_sql(in_catalog(type="hive", uri="thrift://h"))


def test_duckdb_reads_the_newest_metadata_file(command, client, table):
    command("tables", "create", table, "-c", "id BIGINT")
    made = made_by_pyiceberg(command, table)
    made.append(pa.table({"id": [1, 2]}))
    (info,) = client.get_tables([TablePath.parse(table)])
    with _duckdb().cursor() as connection:
        for statement in statements(duckdb_sql(info)):
            connection.execute(statement)
        assert connection.execute(f"SELECT id FROM {table} ORDER BY id").fetchall() == [(1,), (2,)]


def test_duckdb_reads_nothing_before_the_first_round(command, client, table):
    command("tables", "create", table, "-c", "id BIGINT")
    (info,) = client.get_tables([TablePath.parse(table)])
    refused = command("lake-conf", table, "--for", "duckdb")
    assert refused.refuses(1, nothing_tiered(info).message)
    assert f"run `fluss-tiering tier {table}` first" in refused.err


def test_a_table_whose_tiering_is_off_is_not_sent_to_tier(command, table):
    command("tables", "create", table, "-c", "id BIGINT", "-p", "table.datalake.enabled=false")
    refused = command("lake-conf", table, "--for", "duckdb")
    assert refused.code == 1
    assert f"run `fluss-tiering tables alter {table} --set table.datalake.enabled=true` first" in refused.err
    assert f"fluss-tiering tier {table}" not in refused.err


def test_duckdb_reads_an_empty_lake_table(command, table):
    command("tables", "create", table, "-c", "id BIGINT")
    made_by_pyiceberg(command, table)
    printed = command("lake-conf", table, "--for", "duckdb")
    assert printed.code == 0
    told = f"{table}: no round has found a row yet: the lake table is empty, or it has the rows of a dropped table"
    assert told in printed.err
    with _duckdb().cursor() as connection:
        for statement in statements(printed.out):
            connection.execute(statement)
        assert connection.execute(f"SELECT id FROM {table}").fetchall() == []
