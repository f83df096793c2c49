"""The SQL with which DuckDB reads a lake table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fluss_tiering.cli.lake.lake_place import METADATA_QUERY, metadata_file
from fluss_tiering.lake.names import catalog_name
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo

_SECRET_NAME: Final = "fluss_lake_secret"  # noqa: S105 - a name and no secret


def duckdb_sql(table: TableInfo) -> str:
    """Return statements of DuckDB after which a query finds the lake table of a table by its name.

    DuckDB loads its extensions `iceberg` and `httpfs` by itself, and downloads them at their first use. Statements that
    install them would fail on a machine without the internet, also if the extensions were loaded from files before.

    Raises:
        FlussTieringError: INVALID_REQUEST if DuckDB has no way to read the catalog. The message says how to find the
            metadata file, with which DuckDB reads any lake table.
    """
    properties = table.lake_catalog_properties
    if properties.get("type") == "rest":
        return "\n".join(_of_rest(catalog_name(properties), properties, table))
    path = table.lake_path
    file = metadata_file(table)
    if file is None:
        query = METADATA_QUERY.format(
            catalog=_text(catalog_name(properties)), database=_text(path.database), table=_text(path.table)
        )
        asked = f"; ask its database: {query}" if properties.get("type") == "jdbc" else ""
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"DuckDB cannot read the lake catalog of type {properties.get('type')!r} at {properties.get('uri')!r}: "
            "expected a REST catalog, or a SQLite file that this command can read. iceberg_scan of DuckDB reads "
            f"any lake table by its newest metadata file{asked}",
        )
    schema, name = _name(path.database), _name(path.table)
    return "\n".join(
        (
            f"CREATE SCHEMA IF NOT EXISTS {schema};",
            f"CREATE OR REPLACE VIEW {schema}.{name} AS FROM iceberg_scan({_text(_local(file))});",
        )
    )


def _of_rest(name: str, properties: Mapping[str, str], table: TableInfo) -> list[str]:
    options = ["TYPE iceberg", f"ENDPOINT {_text(properties.get('uri', '').rstrip('/'))}"]
    lines: list[str] = []
    secret = _secret(properties)
    if secret:
        lines.append(f"CREATE OR REPLACE SECRET {_SECRET_NAME} ({', '.join(['TYPE iceberg', *secret])});")
        options.append(f"SECRET {_SECRET_NAME}")
    else:
        options.append("AUTHORIZATION_TYPE 'none'")
    warehouse = _text(properties.get("warehouse", ""))
    names = (name, table.lake_path.database, table.lake_path.table)
    return [
        *lines,
        f"ATTACH {warehouse} AS {_name(name)} ({', '.join(options)});",
        f"-- The table is {'.'.join(map(_name, names))} now.",
    ]


def _secret(properties: Mapping[str, str]) -> list[str]:
    """Return what DuckDB's secret holds in place of the properties of Iceberg; empty if there is no credential."""
    if token := properties.get("token"):
        return [f"TOKEN {_text(token)}"]
    credential = properties.get("credential")
    if not credential:
        return []
    # As in Iceberg, a credential without a colon is a secret without an id.
    client, colon, secret = credential.rpartition(":")
    server = properties.get("oauth2-server-uri", f"{properties.get('uri', '').rstrip('/')}/v1/oauth/tokens")
    found = [f"CLIENT_SECRET {_text(secret)}", f"OAUTH2_SERVER_URI {_text(server)}"]
    if colon:
        found.insert(0, f"CLIENT_ID {_text(client)}")
    if scope := properties.get("scope"):
        found.append(f"OAUTH2_SCOPE {_text(scope)}")
    return found


def _local(location: str) -> str:
    """Return a location as DuckDB takes it, which reads local files by their paths."""
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
