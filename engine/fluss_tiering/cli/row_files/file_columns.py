"""The columns of a new table that are taken from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from fluss_tiering.cli.row_files.files import file_schema
from fluss_tiering.formats.schema import columns_from_arrow
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column


def columns_like(
    path: Path, given: Sequence[Column], primary_key: tuple[str, ...], null_values: list[str]
) -> tuple[Column, ...]:
    """Return the columns of a Parquet or CSV file.

    Args:
        path: The file.
        given: Columns that replace those of the same names in the file.
        primary_key: The columns that are not nullable, whatever the file says.
        null_values: The values that are NULL in a CSV file.

    Raises:
        FlussTieringError: INVALID_REQUEST if the file cannot be read, if it lacks a given column, or if the type that
            is guessed for a column of a CSV file would change its values; INVALID_TABLE if no table can have the type
            of a column.
    """
    instead = {column.name: column for column in given}
    schema = file_schema(path, null_values, instead.keys())
    for name in instead:
        if name not in schema.names:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"--column {name!r}: {path} has no column of this name: expected one of those that it has, "
                f"{', '.join(schema.names)}, to give it another type",
            )
    # What a given column is in the file need not be a type that a table can have.
    known = pa.schema([field.with_type(pa.string()) if field.name in instead else field for field in schema])
    return tuple(instead.get(column.name, column) for column in columns_from_arrow(known, primary_key))
