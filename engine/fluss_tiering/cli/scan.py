"""`fluss-tiering scan`: show the current rows of a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo

if TYPE_CHECKING:
    import pyarrow as pa


class RowFormat(StrEnum):
    """The format in which rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    ARROW = "arrow"


def scan(
    table: options.Table,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="The maximum number of rows.", show_default=False)
    ] = None,
    row_format: Annotated[
        RowFormat | None,
        typer.Option(
            "--format",
            "-f",
            help="The format: a table for people, CSV, JSON lines or an Arrow IPC stream.",
            show_default="table on a terminal, else csv",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="A,B", help="The columns to show, in this order.", show_default="all"),
    ] = None,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Show the current rows of a table.

    For a primary-key table, these are the latest rows of all keys. For a log table, these are all rows, in log order
    within each bucket.

    In CSV, NULL is an empty value without quotes, and an empty text is "". Values of TIMESTAMP_LTZ are in UTC and end
    with Z. Bytes are in hexadecimal. Values of ARRAY, MAP and ROW are JSON.

    An Arrow stream has the types that the Python client returns: a TIMESTAMP_LTZ is a timestamp without a time zone,
    whose values count from the epoch in UTC.

    JSON has no numbers for NaN and infinities: they are the texts "NaN", "Infinity" and "-Infinity".
    """
    from fluss_tiering.cli.row_files import rows  # noqa: PLC0415 - pyarrow, for this command only
    from fluss_tiering.formats.schema import arrow_schema, named_columns  # noqa: PLC0415

    options.names("--columns", columns)
    on_terminal = sys.stdout.isatty()
    row_format = row_format or (RowFormat.TABLE if on_terminal else RowFormat.CSV)
    if row_format is RowFormat.ARROW and on_terminal:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            "an Arrow stream cannot be shown on a terminal: redirect it to a file or a program, or use another format",
        )
    shown = limit if limit or row_format is not RowFormat.TABLE else rows.SHOWN_ROWS + 1
    with rows.standard_output() as out, TieringClient(server) as client, ExitStack() as stack:
        info = client.get_tables([table])[0]
        chosen = info.descriptor.columns
        wanted = options.names("--columns", columns, known=[column.name for column in chosen])
        if wanted:
            chosen = named_columns(str(table), chosen, wanted)
        schema = arrow_schema(chosen)
        names = [column.name for column in chosen]
        batches = stack.enter_context(closing(rows.at_most(_batches(client, info, names, shown, server), shown)))
        match row_format:
            case RowFormat.ARROW:
                rows.write_arrow(out, schema, batches)
            case RowFormat.CSV:
                rows.write_csv(out, chosen, schema, batches)
            case RowFormat.JSON:
                rows.write_json(out, chosen, batches)
            case RowFormat.TABLE:
                all_shown = rows.print_rows(chosen, batches, limit or rows.SHOWN_ROWS, f"{table} has no rows.")
                if not all_shown:
                    output.print_sentence(
                        f"These are the first {rows.SHOWN_ROWS} rows. Use --limit for more, or --format csv for all.",
                        output.error_console,
                    )


def _batches(
    client: TieringClient, info: TableInfo, columns: Sequence[str], limit: int | None, server: str
) -> Iterator[pa.RecordBatch]:
    if info.has_primary_key:
        with client.scan(info, limit=limit, columns=columns) as scanned:
            yield from scanned
        return
    from fluss_tiering.storage.open import open_split_reader  # noqa: PLC0415

    reader = open_split_reader(client.describe_storage(), server)
    for bucket in client.list_buckets([info.path])[info.path]:
        for batch in reader.read_log(info, bucket.bucket, bucket.log_start_offset, bucket.log_end_offset, columns):
            yield batch.records
