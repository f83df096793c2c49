"""`fluss-tiering lake-conf`: print the settings with which Spark, PyIceberg or DuckDB reads a lake table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import quote

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.lake.lake_place import METADATA_QUERY, SQLITE, metadata_file
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.lake.names import catalog_name
from fluss_tiering.model.error_text import MASK, is_hidden
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import is_switched_on, nothing_tiered
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import LAKE_DELETE_FILES, delete_files_of
from fluss_tiering.spark.submit import ICEBERG_EXTENSIONS, conf_arguments, spark_conf

_SPARK_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
_POSTGRESQL: Final = re.compile(r"jdbc:(postgresql)(://.*)")


class Reader(StrEnum):
    """The programs that the settings are for."""

    SPARK = "spark"
    PYICEBERG = "pyiceberg"
    DUCKDB = "duckdb"


def lake_conf(
    table: options.Table,
    reader: Annotated[
        Reader,
        typer.Option("--for", help="The program: arguments of spark-sql, the file .pyiceberg.yaml, or SQL for DuckDB."),
    ] = Reader.SPARK,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Print the settings with which Spark, PyIceberg or DuckDB reads the lake table of a table.

    For Spark these are arguments, for example: spark-sql $(fluss-tiering lake-conf shop.orders). They may contain
    credentials of the catalog. PyIceberg reads no equality deletes: delete by position, or run `fluss-tiering compact`.

    For DuckDB these are SQL statements. With a REST catalog they attach the catalog. With a catalog in a SQLite file
    they make a view of the newest metadata file, so print them again after a round.
    """
    with TieringClient(server) as client:
        (info,) = client.get_tables([table])
        if not info.lake_catalog_properties:
            raise _without_catalog(info)
        is_tiered = client.lake_snapshot(table) is not None
        is_empty = not is_tiered and _has_empty_lake_table(client, info)
        if is_empty:
            output.print_warning(
                f"{table}: no round has found a row yet: the lake table is empty, or it has the rows of a dropped "
                "table of this name"
            )
        elif not is_tiered and reader is not Reader.DUCKDB:
            output.print_warning(f"{table}: {nothing_tiered(info).message}")
    if reader is Reader.PYICEBERG and (deletes := delete_files_of(info.descriptor.properties)) == "equality":
        output.print_warning(
            f"{table}: its rounds write equality deletes, which PyIceberg does not read: "
            f"{LAKE_DELETE_FILES.key} is {deletes!r}. Set it to position with `fluss-tiering tables alter`, and "
            f"run `fluss-tiering compact {table}`."
        )
    properties = dict(info.lake_catalog_properties)
    hidden = sorted(key for key, value in properties.items() if is_hidden(value))
    if hidden:
        output.print_warning(
            f"The server hides what may be secret, with {MASK} in its place: {', '.join(hidden)}. It shows that to "
            "callers with the role tierer for the table; otherwise replace it yourself."
        )
    if reader is Reader.DUCKDB:
        if not is_tiered and not is_empty and properties.get("type") != "rest":
            raise nothing_tiered(info)
        output.print_as_it_is(duckdb_sql(info))
        return
    name = catalog_name(properties)
    properties.pop("name", None)
    if reader is Reader.SPARK:
        output.print_arguments(conf_arguments(_spark(name, properties)))
        return
    lines = [f"    {key}: {_yaml(value)}" for key, value in sorted(_pyiceberg(properties).items())]
    text = "\n".join(("catalog:", f"  {_yaml(name)}:", *lines))
    output.print_as_it_is(text)


def _without_catalog(info: TableInfo) -> FlussTieringError:
    """Return the error of a table of a cluster that names no lake catalog for it."""
    why = "" if is_switched_on(info) else ", since its tiering is switched off"
    return FlussTieringError(
        ErrorCode.INVALID_TIERING_STATE,
        f"the Fluss cluster names no lake catalog for {info.path}{why}: expected options table.datalake.*; all tables "
        f"of a cluster have the same lake catalog, so name a table that is tiered, and read {info.lake_path} there",
    )


def _has_empty_lake_table(client: TieringClient, info: TableInfo) -> bool:
    """Return whether a table without a lake snapshot has a lake table: a round made it and found no row."""
    if metadata_file(info) is not None:
        return True
    try:
        return any(status.last_tiered_time is not None for status in client.list_tiering_statuses(info.path))
    except FlussTieringError as error:
        if error.code is not ErrorCode.INVALID_TIERING_STATE:
            raise
        return False


def _spark(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    needed = {key: value for key, value in spark_conf().items() if key.startswith("spark.jars")}
    catalog = f"spark.sql.catalog.{name}"
    return {
        **needed,
        # For statements such as ALTER TABLE … ADD PARTITION FIELD, which the documentation and errors name.
        "spark.sql.extensions": ICEBERG_EXTENSIONS,
        catalog: _SPARK_CATALOG,
        **{f"{catalog}.{key}": value for key, value in sorted(properties.items())},
    }


def _pyiceberg(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties in the words of PyIceberg, which says "sql" to a JDBC catalog."""
    if properties.get("type") != "jdbc":
        return dict(properties)
    uri = properties.get("uri", "")
    kept = {
        "type": "sql",
        **{
            key: value
            for key, value in properties.items()
            if key not in ("type", "uri") and not key.startswith("jdbc.")
        },
    }
    if match := SQLITE.fullmatch(uri):
        return {**kept, "uri": f"sqlite:///{match[1]}"}
    if match := _POSTGRESQL.fullmatch(uri):
        user, password = (quote(properties.get(f"jdbc.{name}", ""), safe="*") for name in ("user", "password"))
        login = f"{user}:{password}@" if user else ""
        return {**kept, "uri": f"postgresql+psycopg2://{login}{match[2].removeprefix('://')}"}
    raise FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"PyIceberg has no name for the JDBC catalog {uri!r}: expected SQLite or PostgreSQL; see its documentation",
    )


def _yaml(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*", text) else "'" + text.replace("'", "''") + "'"


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
        return "\n".join(_rest_catalog_sql(catalog_name(properties), properties, table))
    path = table.lake_path
    file = metadata_file(table)
    if file is None:
        query = METADATA_QUERY.format(
            catalog=_sql_text(catalog_name(properties)), database=_sql_text(path.database), table=_sql_text(path.table)
        )
        asked = f"; ask its database: {query}" if properties.get("type") == "jdbc" else ""
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"DuckDB cannot read the lake catalog of type {properties.get('type')!r} at {properties.get('uri')!r}: "
            "expected a REST catalog, or a SQLite file that this command can read. iceberg_scan of DuckDB reads "
            f"any lake table by its newest metadata file{asked}",
        )
    schema, name = _sql_name(path.database), _sql_name(path.table)
    return "\n".join(
        (
            f"CREATE SCHEMA IF NOT EXISTS {schema};",
            f"CREATE OR REPLACE VIEW {schema}.{name} AS FROM iceberg_scan({_sql_text(_local_path(file))});",
        )
    )


def _rest_catalog_sql(name: str, properties: Mapping[str, str], table: TableInfo) -> list[str]:
    options = ["TYPE iceberg", f"ENDPOINT {_sql_text(properties.get('uri', '').rstrip('/'))}"]
    lines: list[str] = []
    secret = _secret(properties)
    if secret:
        lines.append(f"CREATE OR REPLACE SECRET {_SECRET_NAME} ({', '.join(['TYPE iceberg', *secret])});")
        options.append(f"SECRET {_SECRET_NAME}")
    else:
        options.append("AUTHORIZATION_TYPE 'none'")
    warehouse = _sql_text(properties.get("warehouse", ""))
    names = (name, table.lake_path.database, table.lake_path.table)
    return [
        *lines,
        f"ATTACH {warehouse} AS {_sql_name(name)} ({', '.join(options)});",
        f"-- The table is {'.'.join(map(_sql_name, names))} now.",
    ]


def _secret(properties: Mapping[str, str]) -> list[str]:
    """Return what DuckDB's secret holds in place of the properties of Iceberg; empty if there is no credential."""
    if token := properties.get("token"):
        return [f"TOKEN {_sql_text(token)}"]
    credential = properties.get("credential")
    if not credential:
        return []
    # As in Iceberg, a credential without a colon is a secret without an id.
    client, colon, secret = credential.rpartition(":")
    server = properties.get("oauth2-server-uri", f"{properties.get('uri', '').rstrip('/')}/v1/oauth/tokens")
    found = [f"CLIENT_SECRET {_sql_text(secret)}", f"OAUTH2_SERVER_URI {_sql_text(server)}"]
    if colon:
        found.insert(0, f"CLIENT_ID {_sql_text(client)}")
    if scope := properties.get("scope"):
        found.append(f"OAUTH2_SCOPE {_sql_text(scope)}")
    return found


def _local_path(location: str) -> str:
    """Return a location as DuckDB takes it, which reads local files by their paths."""
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sql_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
