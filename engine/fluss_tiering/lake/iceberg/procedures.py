"""Iceberg's own procedures, called through Spark SQL on a lake table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

from pyspark.sql import Row, SparkSession

from fluss_tiering.lake.iceberg.catalog import DEFAULT_CATALOG_NAME
from fluss_tiering.model.table import TableInfo

Argument: TypeAlias = str | bool | int | datetime | list[int] | Mapping[str, str]


def call_procedure(spark: SparkSession, table: TableInfo, procedure: str, **arguments: Argument) -> list[Row]:
    """The rows that a procedure of the table's catalog returns. Raises what `lake_errors` catches."""
    catalog = table.lake_catalog_properties.get("name", DEFAULT_CATALOG_NAME)
    named = "".join(f", {name} => {_literal(name, value)}" for name, value in arguments.items())
    given = {name: value for name, value in arguments.items() if _is_parameter(value)}
    statement = f"CALL {_quoted(catalog)}.system.{procedure}(table => :table{named})"
    return list(spark.sql(statement, args={"table": str(table.path), **given}).collect())


def _is_parameter(value: Argument) -> bool:
    return not isinstance(value, list | Mapping)


def _literal(name: str, value: Argument) -> str:
    """Numbers of a list and plain options are written out: Spark takes no parameter of these types here."""
    if isinstance(value, list):
        return f"ARRAY({', '.join(f'{number}L' for number in value)})"
    if isinstance(value, Mapping):
        texts = [f"'{text}'" for item in value.items() for text in item]
        return f"MAP({', '.join(texts)})"
    return f":{name}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
