"""`fluss-tiering tables`: list, create and describe tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.command import Command
from fluss_tiering.cli.common.options import CSV
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.common.security import about_nothing
from fluss_tiering.cli.lake import lake_place
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.lake.names import catalog_name
from fluss_tiering.model.error_text import mask_secrets, masked_options
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import is_switched_on
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, partition_name
from fluss_tiering.model.table_options import LAKE_ENABLED, LAKE_FRESHNESS
from fluss_tiering.plural import counted

_QUOTED_COLUMN: Final = re.compile(r"`(?P<name>(?:[^`]|``)+)`\s*(?P<type>.*)", re.DOTALL)
"""A column whose name is in backticks, as in SQL, in which a backtick is doubled."""
_FRESHNESS: Final = LAKE_FRESHNESS.default
_SHOWN_COLUMNS: Final = 20

app = typer.Typer(help="List, create, describe, alter and drop tables.", no_args_is_help=True)


@app.command("list", cls=Command)
def list_tables(server: options.Server = DEFAULT_TARGET, json: options.Json = False) -> None:
    """Show all tables."""
    with TieringClient(server) as client:
        tables = client.list_tables()
    if json:
        output.print_json(_as_json(each) for each in tables)
        return
    output.print_table(
        None,
        [
            Heading("Table"),
            Heading("Id", numeric=True),
            Heading("Kind"),
            Heading("Key"),
            Heading("Columns", numeric=True, spare=2),
            Heading("Buckets", numeric=True, spare=1),
            Heading("Freshness"),
            Heading("Created", spare=3),
        ],
        (_as_row(each) for each in tables),
        empty=about_nothing(
            "There is no table yet. Create one with `fluss-tiering tables create`.",
            "There is no table that you may see. Create one with `fluss-tiering tables create`, or ask an "
            "administrator of the server for a role.",
        ),
    )


@app.command("create", cls=Command)
def create_table(
    table: options.Table,
    like: Annotated[
        Path | None,
        typer.Option(
            "--like", metavar="FILE", help="Take the columns from this Parquet or CSV file.", show_default=False
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            "-c",
            metavar="'NAME TYPE'",
            help="A column, for example 'price DECIMAL(10, 2) NOT NULL'. A name with blanks is put into backticks. "
            "Beside --like, it replaces the type of this column of the file.",
        ),
    ] = None,
    primary_key: Annotated[
        str | None,
        typer.Option("--primary-key", metavar="A,B", help="The columns of the primary key.", show_default=False),
    ] = None,
    bucket_key: Annotated[
        str | None,
        typer.Option(
            "--bucket-key",
            metavar="A,B",
            help="The columns that decide the bucket, by default those of the primary key without the partition key. "
            "A Fluss cluster and a legacy lake table take one.",
            show_default=False,
        ),
    ] = None,
    partition_key: Annotated[
        str | None,
        typer.Option(
            "--partition-key",
            metavar="A,B",
            help="The partition columns, which are STRING, DATE, BOOLEAN or whole numbers. For a cluster of Fluss or a "
            "legacy lake table, they are STRING.",
            show_default=False,
        ),
    ] = None,
    buckets: Annotated[int, typer.Option("--buckets", min=1, max=1024, help="The number of buckets.")] = 1,
    freshness: Annotated[
        str | None,
        typer.Option(
            "--freshness",
            metavar="DURATION",
            help="The maximum age of the data in the lake.",
            show_default=_FRESHNESS,
        ),
    ] = None,
    table_property: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="KEY=VALUE", help="A table option, by its Fluss name."),
    ] = None,
    null_value: options.NullValue = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the table exists.")] = False,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Create a table that is tiered into the lake. The columns come from a file or from --column.

    A CSV file has no types. They are guessed from its first 33 MiB: whole numbers become BIGINT, other numbers DOUBLE,
    dates DATE, times of a day TIME, dates with a time TIMESTAMP, true and false BOOLEAN, and all else STRING. Amounts
    of money are best given as --column 'amount DECIMAL(18, 2)' beside --like.
    """
    key = options.names("--primary-key", primary_key)
    properties = key_values("--property", table_property or [])
    if freshness is not None and LAKE_FRESHNESS.key in properties:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the freshness is given twice: expected either --freshness or --property {LAKE_FRESHNESS.key}=...",
        )
    if null_value and like is None:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, "--null-value is about the file of --like, which is not given: leave it out"
        )
    if like is not None:
        options.check_null_values(null_value, [like])
    given = given_columns("--column", column, key)
    descriptor = TableDescriptor(
        columns=_columns(like, given, key, ["", *(null_value or [])]),
        primary_key=key,
        bucket_keys=options.names("--bucket-key", bucket_key),
        num_buckets=buckets,
        partition_keys=options.names("--partition-key", partition_key),
        properties={
            LAKE_ENABLED.key: "true",
            LAKE_FRESHNESS.key: _FRESHNESS if freshness is None else freshness,
            **properties,
        },
    )
    with TieringClient(server) as client, or_nothing(if_not_exists, ErrorCode.TABLE_ALREADY_EXIST) as happened:
        info = client.create_table(table, descriptor)
    if not happened:
        output.print_sentence(f"{table} existed already, and was left as it is.")
        return
    output.print_sentence(f"{info.path} is table {info.table_id}.")
    if like is not None and like.suffix.lower() == CSV:
        _tell_guessed(like, [each for each in info.descriptor.columns if each not in given])


@app.command("describe", cls=Command)
def describe_table(table: options.Table, server: options.Server = DEFAULT_TARGET, json: options.Json = False) -> None:
    """Show a table's columns, options, buckets and lake table."""
    with TieringClient(server) as client:
        info = client.get_tables([table])[0]
        buckets = client.list_buckets([table])[table]
        is_tiered = client.lake_snapshot(table) is not None
    if json:
        output.print_json([{**_as_json(info), "lake_table": _lake_json(info)}])
        return
    print_columns(info)
    output.print_table(
        "buckets",
        [
            *([Heading("Partition")] if info.descriptor.partition_keys else ()),
            Heading("Bucket", numeric=True),
            Heading("Log", numeric=True),
            Heading("Size", numeric=True),
            Heading("KV snapshot"),
        ],
        (
            [
                *([partition_name(bucket.partition_values)] if info.descriptor.partition_keys else ()),
                str(bucket.bucket.bucket),
                f"{bucket.log_start_offset:,} – {bucket.log_end_offset:,}",
                output.bytes_cell(bucket.log_size_bytes),
                f"{bucket.latest_kv_snapshot.snapshot_id} at offset {bucket.latest_kv_snapshot.log_offset:,}"
                if bucket.latest_kv_snapshot
                else output.NOTHING,
            ]
            for bucket in buckets
        ),
        empty="no buckets",
    )
    output.print_table(
        "options",
        [Heading("Option"), Heading("Value")],
        option_rows(info),
        empty="no options",
    )
    output.print_sentence(escape(_lake_text(info, lake_place.folder(info), is_tiered=is_tiered)))


def print_columns(info: TableInfo) -> None:
    """Print the columns of a table with their types and keys."""
    output.print_table(
        f"{info.path}: columns",
        [Heading("Column"), Heading("Type"), Heading("Key")],
        (
            [
                output.text_cell(_shown(column.name)),
                str(column.data_type),
                _key_parts(info, column.name),
            ]
            for column in info.descriptor.columns
        ),
        empty="no columns",
    )


@contextmanager
def or_nothing(tolerated: bool, code: ErrorCode) -> Iterator[list[bool]]:
    """Yield a list that is empty after the block if the block failed with this code, and if that is tolerated."""
    happened = [True]
    try:
        yield happened
    except FlussTieringError as error:
        if not tolerated or error.code is not code:
            raise
        happened.clear()


def _tell_guessed(file: Path, columns: Sequence[Column]) -> None:
    kinds = [f"{_shown(each.name)} {each.data_type}" for each in columns]
    rest = f" and {counted(len(kinds) - _SHOWN_COLUMNS, 'more column')}" if len(kinds) > _SHOWN_COLUMNS else ""
    output.print_progress(
        f"These types are guessed from {file}: {', '.join(kinds[:_SHOWN_COLUMNS])}{rest}. If one is not what you want, "
        "drop the table, and create it with --column 'NAME TYPE' beside --like"
    )


def _columns(
    like: Path | None, given: tuple[Column, ...], key: tuple[str, ...], null_values: list[str]
) -> tuple[Column, ...]:
    if like is None:
        if not given:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                "there are no columns: expected --like FILE, or one --column 'NAME TYPE' for each column",
            )
        return given
    from fluss_tiering.cli.row_files.file_columns import columns_like  # noqa: PLC0415 - pyarrow, for this command only

    return columns_like(like, given, key, null_values)


def given_columns(option: str, texts: list[str] | None, key: tuple[str, ...] = ()) -> tuple[Column, ...]:
    """Return the columns in the values of an option, such as `price DECIMAL(10, 2) NOT NULL`.

    Args:
        key: The columns that are not nullable, whatever their text says.

    Raises:
        FlussTieringError: INVALID_REQUEST if a text is not a name and a type; INVALID_TABLE if there is no such type.
    """
    return tuple(_column(option, text, key) for text in texts or ())


def _column(option: str, text: str, key: tuple[str, ...]) -> Column:
    quoted = _QUOTED_COLUMN.fullmatch(text.strip())
    if quoted is not None:
        name, data_type = quoted["name"].replace("``", "`"), quoted["type"]
    else:
        name, _, data_type = text.strip().partition(" ")
    if not data_type or (quoted is None and name.startswith("`")):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{option} {text!r}: expected 'NAME TYPE', for example 'id BIGINT' or '`unit price` DOUBLE'",
        )
    try:
        parsed = DataType.parse(data_type)
    except FlussTieringError as error:
        raise FlussTieringError(
            error.code,
            f"{option} {text!r}: {error.message}. The first blank ends the name: put a name with blanks into "
            "backticks, as in '`unit price` DOUBLE'",
        ) from None
    if name in key:
        parsed = replace(parsed, nullable=False)
    return Column(name, parsed)


def _shown(name: str) -> str:
    """Return a name, in quotes if nobody would see the blanks at its ends."""
    return repr(name) if name != name.strip() else name


def _key_parts(info: TableInfo, name: str) -> str:
    """Return the keys of the table that the column belongs to."""
    keys = {"primary": info.descriptor.primary_key, "partition": info.descriptor.partition_keys}
    return ", ".join(kind for kind, names in keys.items() if name in names) or output.NOTHING


def option_rows(info: TableInfo) -> list[list[str]]:
    """Return the options of a table as rows of a table for people. Secrets are masked."""
    properties = sorted(masked_options(info.descriptor.properties).items())
    return [[output.text_cell(key), output.text_cell(value)] for key, value in properties]


def _key_value(option: str, text: str, expected: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{option} {text!r}: expected {expected}")
    return key.strip(), value.strip()


def key_values(option: str, texts: Sequence[str], expected: str = "KEY=VALUE") -> dict[str, str]:
    """Return the pairs in the values of an option.

    Raises:
        FlussTieringError: INVALID_REQUEST if a text is no pair, or if a key is given twice.
    """
    found: dict[str, str] = {}
    for key, value in (_key_value(option, each, expected) for each in texts):
        if key in found:
            first, second = (masked_options({key: each})[key] for each in (found[key], value))
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{option} sets {key!r} twice, to {first!r} and to {second!r}: expected each key once",
            )
        found[key] = value
    return found


def _as_row(info: TableInfo) -> list[str]:
    descriptor = info.descriptor
    return [
        str(info.path),
        str(info.table_id),
        "primary key" if info.has_primary_key else "log",
        output.text_cell(", ".join(descriptor.primary_key) or None),
        output.count_cell(len(descriptor.columns)),
        output.count_cell(descriptor.num_buckets),
        output.text_cell(descriptor.properties.get("table.datalake.freshness")),
        output.ago_cell(info.created_time),
    ]


def _lake_text(info: TableInfo, folder: str | None, *, is_tiered: bool) -> str:
    """Return where the lake table of a table is, or will be."""
    catalog = info.lake_catalog_properties
    if not catalog:
        return "The table is in no lake catalog."
    place = f"{info.lake_path} in the lake catalog {catalog_name(catalog)} ({catalog.get('type', 'of its own type')})"
    if folder is None and not is_tiered:
        off = "" if is_switched_on(info) else f", once {LAKE_ENABLED.key} is true"
        return f"Lake table: none yet. The first round makes {place}{off}."
    if folder is not None:
        return f"Lake table: {place}, in the folder {folder}."
    warehouse = mask_secrets(catalog.get("warehouse", ""))
    told = f" The warehouse of the catalog is {warehouse}." if warehouse else ""
    return f"Lake table: {place}. Its folder is known to the catalog.{told}"


def _lake_json(info: TableInfo) -> dict[str, object]:
    return {
        "catalog": catalog_name(info.lake_catalog_properties),
        "database_name": info.lake_path.database,
        "table_name": info.lake_path.table,
        "location": lake_place.folder(info),
    }


def _as_json(info: TableInfo) -> dict[str, object]:
    descriptor = info.descriptor
    return {
        "database_name": info.path.database,
        "table_name": info.path.table,
        "table_id": info.table_id,
        "schema_id": info.schema_id,
        "columns": [{"name": column.name, "type": str(column.data_type)} for column in descriptor.columns],
        "primary_key": list(descriptor.primary_key),
        "bucket_keys": list(descriptor.bucket_keys),
        "partition_keys": list(descriptor.partition_keys),
        "auto_increment_columns": list(descriptor.auto_increment_columns),
        "num_buckets": descriptor.num_buckets,
        "properties": masked_options(descriptor.properties),
        "created_time": output.iso_time(info.created_time),
    }
