"""What both storages do with a write: its rows are checked, placed in buckets and, in log batches, compressed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.formats.keys import encode_keys
from fluss_tiering.formats.log.batch import LogCompression
from fluss_tiering.formats.rows import conform
from fluss_tiering.model.data_type import DataType
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.model.table_options import LOG_COMPRESSION

_MAX_WRITE_BYTES: Final = 1 << 30
"""An Arrow array of strings holds 2 GiB at most, and a changelog can have a row twice."""
_LEAST_ROWS_PER_BUCKET: Final = 4096
"""A smaller write without a bucket key goes to one bucket, since each bucket that it touches costs a sync."""
_BYTES: Final = DataType.parse("BYTES")
_COMPRESSIONS: Final[Mapping[str, LogCompression]] = {"NONE": "NONE", "LZ4_FRAME": "LZ4_FRAME", "ZSTD": "ZSTD"}


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
    else:
        rows = _with_added(table, rows)
    checked = conform(rows, columns, descriptor.primary_key)
    if checked.nbytes > _MAX_WRITE_BYTES:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"the rows take {checked.nbytes} bytes: expected at most {_MAX_WRITE_BYTES}; write fewer at once",
        )
    batches = checked.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=checked.schema)


def _with_added(table: TableInfo, rows: pa.Table) -> pa.Table:
    """Return rows with nulls in the columns that were added later, if a writer does not know these yet."""
    if not table.schemas:
        return rows
    first, present = table.schemas[0].column_ids, table.present_schema
    for column, number in zip(present.columns, present.column_ids, strict=True):
        if number not in first and column.name not in rows.column_names:
            rows = rows.append_column(column.name, pa.nulls(rows.num_rows))
    return rows


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


def place_by_key(
    records: pa.RecordBatch, descriptor: TableDescriptor, num_buckets: int
) -> Mapping[int, pa.RecordBatch]:
    """Return the rows of each bucket by the hash of the bucket key, in the order of the write.

    Of several columns, the bytes of a compacted key are hashed. Fluss refuses such tables if their lake is Iceberg, so
    that it has no rule for them.

    Raises:
        FlussTieringError: INVALID_ROWS if a bucket key is null.
    """
    keys = [descriptor.column(name) for name in descriptor.bucket_keys]
    if len(keys) == 1:
        buckets = assign_buckets(records.column(keys[0].name), keys[0].data_type, num_buckets)
    else:
        buckets = assign_buckets(encode_keys(records, keys), _BYTES, num_buckets)
    if num_buckets == 1:
        return {0: records}
    order = np.argsort(buckets, kind="stable")
    touched, starts = np.unique(buckets[order], return_index=True)
    ordered = records.take(pa.array(order))
    ends = [*starts[1:], len(order)]
    return {
        int(bucket): ordered.slice(start, end - start) for bucket, start, end in zip(touched, starts, ends, strict=True)
    }


def place_evenly(records: pa.RecordBatch, rows_in_buckets: Sequence[int]) -> Mapping[int, pa.RecordBatch]:
    """Return the rows of each bucket so that the buckets with the fewest rows become level.

    Each bucket gets one run of consecutive rows.

    Args:
        records: The rows for a log table without a bucket key.
        rows_in_buckets: The number of rows that each bucket has; equal numbers give an equal placement.
    """
    wanted = min(len(rows_in_buckets), max(1, records.num_rows // _LEAST_ROWS_PER_BUCKET))
    filled = np.array(rows_in_buckets, np.int64)
    emptiest = np.argsort(filled, kind="stable")[:wanted]
    counts = _fill_up(filled[emptiest], records.num_rows)
    starts = np.cumsum(counts) - counts
    return {
        int(bucket): records.slice(start, count)
        for bucket, start, count in zip(emptiest, starts, counts, strict=True)
        if count
    }


def _fill_up(
    levels: np.ndarray[tuple[int], np.dtype[np.int64]], rows: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many of the rows to add to each of the ascending levels, so that the lowest ones become level."""
    reached = np.arange(1, len(levels) + 1)
    water = (rows + np.cumsum(levels)) // reached
    filled = int(np.flatnonzero(water >= levels)[-1]) + 1
    counts = np.zeros_like(levels)
    counts[:filled] = water[filled - 1] - levels[:filled]
    counts[: rows - int(counts.sum())] += 1
    return counts


def compression_of(descriptor: TableDescriptor) -> LogCompression:
    """Return how the log batches of a table are compressed.

    Raises:
        FlussTieringError: INVALID_TABLE if the table's option names an unknown compression.
    """
    value = descriptor.properties.get(LOG_COMPRESSION.key, LOG_COMPRESSION.default)
    compression = _COMPRESSIONS.get(value.upper())
    if compression is None:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"{LOG_COMPRESSION.key} is {value!r}: expected one of {', '.join(_COMPRESSIONS)}",
        )
    return compression
