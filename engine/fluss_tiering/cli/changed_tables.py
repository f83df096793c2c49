"""`fluss-tiering tables alter`, `drop` and `drop-partition`: change tables and drop them."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer
from rich.markup import escape

from fluss_tiering.cli.common import options, output
from fluss_tiering.cli.common.command import Command
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.tables import app, given_columns, key_values, option_rows, or_nothing, print_columns
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn, WidenColumn
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import partition_name
from fluss_tiering.plural import counted

__all__ = ["app"]

_DropUntiered = Annotated[
    bool, typer.Option("--drop-untiered", help="Drop it although it has records that are not in the lake.")
]


@app.command("alter", cls=Command)
def alter_table(
    table: options.Table,
    set_option: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A table option, by its Fluss name.")
    ] = None,
    reset_option: Annotated[
        list[str] | None, typer.Option("--reset", metavar="KEY", help="A table option to reset to its default.")
    ] = None,
    change_type: Annotated[
        list[str] | None,
        typer.Option("--change-type", metavar="'NAME TYPE'", help="A column and its wider type, such as 'n BIGINT'."),
    ] = None,
    drop_column: Annotated[
        list[str] | None, typer.Option("--drop-column", metavar="NAME", help="A column to drop with its values.")
    ] = None,
    rename_column: Annotated[
        list[str] | None, typer.Option("--rename-column", metavar="OLD=NEW", help="A column and its new name.")
    ] = None,
    add_column: Annotated[
        list[str] | None,
        typer.Option("--add-column", metavar="'NAME TYPE'", help="A column to add at the end, null in older rows."),
    ] = None,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Set and reset options of a table, or change its columns.

    You can alter the options that begin with table.datalake. and custom options, whose names are your own: they are
    kept with the table and do nothing. All other options are fixed when the table is created. If a parked table is
    altered, it is resumed, too.

    Columns can be changed on the embedded storage, all in one step: first types, then drops, renames and additions. The
    lake table follows in the next round. Types that become wider are integers, FLOAT and the precision of a DECIMAL.
    """
    changes: list[ColumnChange] = [
        *(WidenColumn(each.name, each.data_type) for each in given_columns("--change-type", change_type)),
        *map(DropColumn, drop_column or ()),
        *itertools.starmap(RenameColumn, key_values("--rename-column", rename_column or [], "OLD=NEW").items()),
        *map(AddColumn, given_columns("--add-column", add_column)),
    ]
    if bool(set_option or reset_option) == bool(changes):
        wrong = "options and columns are changed by a command each" if changes else "there is nothing to change"
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{wrong}: expected either --set KEY=VALUE and --reset KEY, or changes of columns, for example "
            f"`fluss-tiering tables alter {table} --add-column 'note STRING'`",
        )
    with TieringClient(server) as client:
        if changes:
            print_columns(client.alter_table(table, column_changes=changes))
            return
        info = client.alter_table(table, key_values("--set", set_option or []), reset_option or [])
    output.print_table(
        f"{info.path}: options",
        [Heading("Option"), Heading("Value")],
        option_rows(info),
        empty=f"{info.path} has no options now.",
    )


@app.command("drop", cls=Command)
def drop_table(
    table: options.Table,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if the table does not exist.")] = False,
    drop_untiered: _DropUntiered = False,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Drop a table with its rows, snapshots and status. Its lake table stays.

    A table that is tiered is dropped once all of its records are in the lake. Otherwise the command is refused, and
    says how many are not.
    """
    untiered: int | None = 0
    with TieringClient(server) as client, or_nothing(if_exists, ErrorCode.TABLE_NOT_EXIST) as happened:
        untiered = client.drop_table(table, drop_untiered=drop_untiered)
    dropped = f"Dropped {table}" if happened else f"There is no table {table}: nothing was dropped"
    output.print_sentence(f"{dropped}{_lost(untiered)}.")


@app.command("drop-partition", cls=Command)
def drop_partition(
    table: options.Table,
    values: Annotated[
        list[str], typer.Argument(metavar="VALUE", help="The value of each partition column.", show_default=False)
    ],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if the partition does not exist.")] = False,
    drop_untiered: _DropUntiered = False,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Drop a partition with its rows and snapshots. Its rows in the lake stay.

    A partition of a table that is tiered is dropped once all of its records are in the lake. Otherwise the command is
    refused, and says how many are not.
    """
    untiered: int | None = 0
    with TieringClient(server) as client, or_nothing(if_exists, ErrorCode.PARTITION_NOT_EXIST) as happened:
        untiered = client.drop_partition(table, values, drop_untiered=drop_untiered)
    partition = f"partition {partition_name(values)}"
    dropped = f"Dropped {partition} of {table}" if happened else f"{table} has no {partition}: nothing was dropped"
    output.print_sentence(escape(f"{dropped}{_lost(untiered)}."))


def _lost(untiered: int | None) -> str:
    """Return what a drop lost that was not in the lake, as the end of a sentence."""
    if untiered is None:
        return ". How many of its records were not in the lake could not be counted"
    return f", with {counted(untiered, 'log record')} that never came into the lake" if untiered else ""
