"""Write rows to standard output: as a table for people, or as CSV, JSON lines or an Arrow stream for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedWriter, RawIOBase
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.csv
import typer

from fluss_tiering.cli.common import output
from fluss_tiering.cli.common.output import Heading
from fluss_tiering.cli.row_files.json_lines import hexadecimal_texts, json_lines, nested_texts
from fluss_tiering.formats.schema import is_bytes
from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.error_text import harmless
from fluss_tiering.model.table import Column, DataTypeRoot

SHOWN_ROWS: Final = 100
"""The number of rows in a table if no limit is given, because nobody reads more rows that scroll by."""
_BROKEN_PIPE_CODE: Final = 141
"""The exit code that a shell reports for a program that SIGPIPE ended."""
_NUMERIC: Final = frozenset(
    {
        DataTypeRoot.TINYINT,
        DataTypeRoot.SMALLINT,
        DataTypeRoot.INT,
        DataTypeRoot.BIGINT,
        DataTypeRoot.FLOAT,
        DataTypeRoot.DOUBLE,
        DataTypeRoot.DECIMAL,
    }
)


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Yield standard output for bytes. The program ends quietly when the reader closes the pipe, as `| head` does."""
    stdout = sys.stdout.buffer
    # With PYTHONUNBUFFERED a write may be partial, and the writer would have to repeat it for the rest.
    buffered = BufferedWriter(stdout) if isinstance(stdout, RawIOBase) else stdout
    try:
        yield buffered
        buffered.flush()
    except BrokenPipeError:
        # Buffered output would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(_BROKEN_PIPE_CODE) from None
    finally:
        if isinstance(buffered, BufferedWriter) and buffered is not stdout:
            # Otherwise it would close standard output when it is closed.
            buffered.detach()


def write_arrow(out: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write the rows as an Arrow IPC stream."""
    with pa.ipc.new_stream(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_csv(out: BinaryIO, columns: Sequence[Column], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write the rows as CSV with a header.

    NULL is an empty field, and an empty text is quoted. TIMESTAMP_LTZ values end with Z. Bytes are in hexadecimal.
    """
    zoned = _zoned(columns, schema)
    with pa.csv.CSVWriter(out, zoned) as writer:
        for batch in batches:
            writer.write_batch(_with_texts(batch, columns).cast(zoned))


def write_json(out: BinaryIO, columns: Sequence[Column], batches: Iterable[pa.RecordBatch]) -> None:
    """Write the rows as JSON lines with one object for each row."""
    for batch in batches:
        for lines in json_lines(batch, columns):
            out.write(lines)


def print_rows(columns: Sequence[Column], batches: Iterable[pa.RecordBatch], limit: int, empty: str) -> bool:
    """Print a table of at most `limit` rows, or the sentence `empty`. Return whether these were all rows."""
    headings = [Heading(harmless(column.name), numeric=column.data_type.root in _NUMERIC) for column in columns]
    texts = [
        [column.cast(pa.string()).to_pylist() for column in _with_texts(batch, columns).columns] for batch in batches
    ]
    rows = [row for batch in texts for row in zip(*batch, strict=True)]
    cells = ([output.text_cell(value) for value in row] for row in rows[:limit])
    output.print_table(None, headings, cells, empty)
    return len(rows) <= limit


def at_most(batches: Iterable[pa.RecordBatch], limit: int | None) -> Generator[pa.RecordBatch, None, None]:
    """Yield the first `limit` rows, or all rows if `limit` is None."""
    if limit is None:
        yield from batches
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


def _with_texts(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return the rows with text for nested values and bytes, which CSV and tables cannot show otherwise."""
    arrays = []
    for column, values in zip(columns, batch.columns, strict=True):
        if column.data_type.root in NESTED:
            arrays.append(nested_texts(values, column.data_type))
        else:
            arrays.append(hexadecimal_texts(values) if is_bytes(values.type) else values)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _zoned(columns: Sequence[Column], schema: pa.Schema) -> pa.Schema:
    """Return the schema of `_with_texts` with UTC for TIMESTAMP_LTZ, which log batches store without a time zone."""
    return pa.schema([_zoned_field(column, field) for column, field in zip(columns, schema, strict=True)])


def _zoned_field(column: Column, field: pa.Field) -> pa.Field:
    if column.data_type.root is DataTypeRoot.TIMESTAMP_LTZ:
        return field.with_type(pa.timestamp(field.type.unit, "UTC"))
    has_text = column.data_type.root in NESTED or is_bytes(field.type)
    return field.with_type(pa.string()) if has_text else field
