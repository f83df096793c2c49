"""The check of all rows of a write against their table, before the first row is written; for both storages."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from fluss_tiering.formats.rows import conform
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, WriteKind

_MAX_WRITE_BYTES: Final = 1 << 30
"""An Arrow array of strings holds 2 GiB at most, and a changelog can have a row twice."""


def conform_write(table: TableInfo, kind: WriteKind, rows: pa.Table) -> pa.RecordBatch:
    """Return the rows in the Arrow schema of the table's `written_columns`, or of the key for a delete.

    Raises:
        FlussTieringError: INVALID_ROWS if the table does not take this kind of write, if the rows do not fit those
            columns, or if they are too many for one write.
    """
    descriptor = table.descriptor
    if descriptor.has_primary_key == (kind is WriteKind.APPEND):
        expected = "upsert or delete" if descriptor.has_primary_key else "append"
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"table {table.path} has {'a' if descriptor.has_primary_key else 'no'} primary key, "
            f"and the rows were to {kind}: expected {expected}",
        )
    columns = descriptor.written_columns
    if descriptor.auto_increment_columns:
        _check_numbered(table, kind, rows)
    if kind is WriteKind.DELETE:
        columns = tuple(descriptor.column(name) for name in descriptor.primary_key)
        ignored = {column.name for column in descriptor.columns} - set(descriptor.primary_key)
        rows = rows.select([index for index, name in enumerate(rows.column_names) if name not in ignored])
    checked = conform(rows, columns, descriptor.primary_key)
    if checked.nbytes > _MAX_WRITE_BYTES:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"the rows take {checked.nbytes} bytes: expected at most {_MAX_WRITE_BYTES}; write fewer at once",
        )
    batches = checked.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=checked.schema)


def _check_numbered(table: TableInfo, kind: WriteKind, rows: pa.Table) -> None:
    """Check the rows for a table whose cluster numbers some columns. Fluss's own clients refuse such rows, too."""
    numbered = table.descriptor.auto_increment_columns
    if kind is WriteKind.DELETE:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"rows of table {table.path} cannot be deleted, since the cluster numbers the column {numbered[0]!r} and "
            "keeps the number: expected upserts; upsert nulls in the other columns",
        )
    given = [name for name in numbered if name in rows.column_names]
    if given:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"the rows have the column {given[0]!r}, which the cluster of table {table.path} numbers itself: expected "
            f"the columns {', '.join(column.name for column in table.descriptor.written_columns)}",
        )
