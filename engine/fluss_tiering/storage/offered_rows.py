"""What a write offers, checked against its table as a whole before the first row is written; for both storages."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from fluss_tiering.formats.rows import conform
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, WriteKind

_MAX_WRITE_BYTES: Final = 1 << 30
"""Arrow's strings of one array hold 2 GiB, and a changelog has a row twice."""


def conform_write(table: TableInfo, kind: WriteKind, rows: pa.Table) -> pa.RecordBatch:
    """The rows in the table's Arrow schema; those of a delete have the key's columns alone.

    Raises:
        FlussTieringError: INVALID_ROWS for a kind of write that the table does not take, rows that do not fit its
            columns, or too many at once.
    """
    descriptor = table.descriptor
    if descriptor.has_primary_key == (kind is WriteKind.APPEND):
        expected = "upsert or delete" if descriptor.has_primary_key else "append"
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"table {table.path} has {'a' if descriptor.has_primary_key else 'no'} primary key, "
            f"and the rows were to {kind}: expected {expected}",
        )
    columns = descriptor.columns
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
