"""`fluss-tiering put`: write rows from files to a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from fluss_tiering.cli.common import options, output
from fluss_tiering.client import DEFAULT_TARGET, TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.model.table_options import DELETE_BEHAVIOR, MERGE_ENGINE
from fluss_tiering.plural import counted

_AGGREGATION: Final = "aggregation"
_IGNORED: Final = "IGNORE"


def put(
    table: options.Table,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Parquet or CSV files. - is standard input, as CSV. It is read to its end before a row is written.",
            show_default=False,
            allow_dash=True,
        ),
    ],
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the rows with these keys from a primary-key table.")
    ] = False,
    null_value: options.NullValue = None,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Write rows from files to a table.

    Rows are appended to a log table. In a primary-key table they are upserted, or deleted by key with --delete.

    A file needs every column of the table, also those that are nullable, since a row is written whole. For --delete the
    columns of the primary key suffice.

    The first line of a CSV file names its columns, which are found by these names in any order. Files that
    `fluss-tiering scan --format csv` writes can be read. CSV cannot hold an ARRAY, a MAP or a ROW: a table with such a
    column takes Parquet files, and CSV files only for --delete.

    An empty value without quotes is NULL. A value in quotes is never NULL: "" is an empty text, and an error in a
    column of numbers, dates or other values that are no text.
    """
    from fluss_tiering.cli.row_files.files import check_file, file_batches  # noqa: PLC0415 - pyarrow, for this command only

    options.check_null_values(null_value, files)
    null_values = ["", *(null_value or [])]
    with TieringClient(server) as client:
        info = client.get_tables([table])[0]
        kind = WriteKind.DELETE if delete else WriteKind.UPSERT if info.has_primary_key else WriteKind.APPEND
        if delete:
            _check_deletes(info)
        columns = info.descriptor.columns
        # Before the first row is written, so that a slip in a name of a file leaves nothing half done.
        for file in files:
            check_file(file)
        written = 0
        columns_shown = TextColumn("{task.description}: {task.fields[rows]}"), TimeElapsedColumn()
        with Progress(*columns_shown, console=output.error_console) as progress:
            for file in files:
                task, of_file = progress.add_task(file.name, total=None, rows=counted(0, "row")), 0
                try:
                    for acknowledged in client.write_rows(table, kind, file_batches(file, columns, null_values)):
                        of_file += acknowledged
                        progress.update(task, rows=counted(of_file, "row"))
                except FlussTieringError as error:
                    so_far = _what_was_written(info.descriptor, kind, written, file.name, of_file)
                    raise _with_place(error, file.name, so_far) from error
                except KeyboardInterrupt:
                    # The server may also write what was sent last. Nobody has waited for its answer.
                    if so_far := _what_was_written(info.descriptor, kind, written, file.name, of_file):
                        output.print_warning(f"the command was interrupted. Before that, at least {so_far}")
                    raise
                written += of_file
    rows = counted(written, "row")
    done = {
        WriteKind.APPEND: f"Appended {rows} to {table}.",
        WriteKind.UPSERT: f"Upserted {rows} into {table}.",
        # Nobody says which of the keys had a row.
        WriteKind.DELETE: f"Sent {counted(written, 'delete')} to {table} by key.",
    }
    output.print_sentence(done[kind])


def _check_deletes(table: TableInfo) -> None:
    """Refuse deletes that the cluster would take and ignore: the command would say that it has deleted rows.

    Raises:
        FlussTieringError: INVALID_ROWS if the table ignores deletes.
    """
    behavior = table.descriptor.properties.get(DELETE_BEHAVIOR, "").upper()
    if behavior == _IGNORED:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"table {table.path} ignores deletes ({DELETE_BEHAVIOR}={behavior}, which Fluss sets for tables with a "
            "merge engine): nothing was deleted; to delete rows, make the table with another delete behavior",
        )


def _of_a_repeat(table: TableDescriptor, kind: WriteKind) -> str:
    """Return what becomes of rows that are written once more."""
    if kind is WriteKind.APPEND:
        return "A repeat appends them once more."
    if kind is WriteKind.UPSERT and table.properties.get(MERGE_ENGINE, "").lower() == _AGGREGATION:
        return "A repeat aggregates them once more."
    return "A repeat changes nothing about them."


def _what_was_written(table: TableDescriptor, kind: WriteKind, before: int, name: str, of_file: int) -> str:
    """Return how many rows were written before the command ended, and what becomes of them if it is repeated.

    Args:
        kind: What the rows are.
        before: The number of rows of the files before.
        of_file: The number of rows of the file itself.

    Returns:
        Nothing if no row was written.
    """
    if not before + of_file:
        return ""
    done = "sent as deletes" if kind is WriteKind.DELETE else "written"
    return (
        f"{counted(before, 'row')} of the files before {name}, and {counted(of_file, 'row')} of {name} itself, "
        f"were {done}. {_of_a_repeat(table, kind)}"
    )


def _with_place(error: FlussTieringError, name: str, so_far: str) -> FlussTieringError:
    """Return the error with the name of the file, and with what was written before it."""
    if error.code is ErrorCode.INVALID_ROWS and name not in error.message:
        error = FlussTieringError(error.code, f"{name}: {error.message}")
    return FlussTieringError(error.code, f"{error.message}. Before the error {so_far}") if so_far else error
