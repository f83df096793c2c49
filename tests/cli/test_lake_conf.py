"""The settings with which others read a lake table. PyIceberg itself takes them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from fluss_tiering.cli.lake_conf import _pyiceberg
from fluss_tiering.model.errors import FlussTieringError


def test_spark_gets_arguments(command, table):  # D30
    command("tables", "create", table, "-c", "id BIGINT", "-p", "table.datalake.iceberg.x=with space")
    printed = command("lake-conf", table)
    assert "eval" in printed.err
    arguments = shlex.split(printed.out)
    settings = dict(each.split("=", 1) for each in arguments[1::2])
    assert set(arguments[::2]) == {"--conf"}
    assert settings["spark.sql.catalog.fluss_lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert settings["spark.sql.catalog.fluss_lake.type"] == "jdbc"
    assert settings["spark.sql.catalog.fluss_lake.x"] == "with space"
    assert any(key.startswith("spark.jars") for key in settings)
    assert command("lake-conf", "cli.nowhere").refuses(1, "cli.nowhere")


def test_arguments_that_a_shell_takes_as_they_are_need_no_hint(command, table):
    command("tables", "create", table, "-c", "id BIGINT")
    printed = command("lake-conf", table)
    assert printed.out.split() == shlex.split(printed.out)
    assert printed.err == ""


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


def test_other_catalogs_are_named_as_pyiceberg_names_them():  # D30
    rest = {"type": "rest", "uri": "http://rest:8181", "warehouse": "w"}
    assert _pyiceberg(rest) == rest
    postgresql = {"type": "jdbc", "uri": "jdbc:postgresql://db:5432/lake", "jdbc.user": "u", "jdbc.password": "p"}
    assert _pyiceberg(postgresql) == {"type": "sql", "uri": "postgresql+psycopg2://u:p@db:5432/lake"}
    with pytest.raises(FlussTieringError, match="jdbc:mysql"):
        _pyiceberg({"type": "jdbc", "uri": "jdbc:mysql://db/lake"})
