"""Rows on standard output: for people as a table, for programs as CSV, JSON lines or an Arrow stream."""

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

from fluss_tiering.cli import hexadecimal, nested_json, output
from fluss_tiering.cli.json_lines import json_lines
from fluss_tiering.cli.output import Heading
from fluss_tiering.formats.schema import is_bytes
from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.table import Column, DataTypeRoot

SHOWN_ROWS: Final = 100
"""In a table, where no limit is given: more scroll by unread."""
_BROKEN_PIPE_CODE: Final = 141
"""What a shell says of a program that SIGPIPE ended."""
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
    """Standard output for bytes; ends quietly when whoever reads it has enough, as `| head` does."""
    stdout = sys.stdout.buffer
    # Unbuffered (PYTHONUNBUFFERED), it takes a part of what is written, and whoever writes would have to go on.
    buffered = BufferedWriter(stdout) if isinstance(stdout, RawIOBase) else stdout
    try:
        yield buffered
        buffered.flush()
    except BrokenPipeError:
        # What is still buffered would fail once more at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(_BROKEN_PIPE_CODE) from None
    finally:
        if isinstance(buffered, BufferedWriter) and buffered is not stdout:
            # Or it would close standard output with itself.
            buffered.detach()


def write_arrow(out: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """An Arrow IPC stream."""
    with pa.ipc.new_stream(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_csv(out: BinaryIO, columns: Sequence[Column], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """CSV with a header; NULL is nothing, an empty text is quoted, instants carry a Z, bytes are in hexadecimal."""
    zoned = _zoned(columns, schema)
    with pa.csv.CSVWriter(out, zoned) as writer:
        for batch in batches:
            writer.write_batch(_with_texts(batch, columns).cast(zoned))


def write_json(out: BinaryIO, columns: Sequence[Column], batches: Iterable[pa.RecordBatch]) -> None:
    """JSON lines: an object for each row."""
    for batch in batches:
        for lines in json_lines(batch, columns):
            out.write(lines)


def print_rows(columns: Sequence[Column], batches: Iterable[pa.RecordBatch], limit: int, empty: str) -> bool:
    """Prints a table of so many rows, or the sentence `empty`; whether these were all."""
    headings = [Heading(column.name, numeric=column.data_type.root in _NUMERIC) for column in columns]
    texts = [
        [column.cast(pa.string()).to_pylist() for column in _with_texts(batch, columns).columns] for batch in batches
    ]
    rows = [row for batch in texts for row in zip(*batch, strict=True)]
    cells = ([output.text_cell(value) for value in row] for row in rows[:limit])
    output.print_table(None, headings, cells, empty)
    return len(rows) <= limit


def at_most(batches: Iterable[pa.RecordBatch], limit: int | None) -> Generator[pa.RecordBatch, None, None]:
    """The first rows."""
    if limit is None:
        yield from batches
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


def _with_texts(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """The rows with texts for what neither CSV nor a table for people has a form of its own for."""
    arrays = []
    for column, values in zip(columns, batch.columns, strict=True):
        if column.data_type.root in NESTED:
            arrays.append(nested_json.texts(values, column.data_type))
        else:
            arrays.append(hexadecimal.texts(values) if is_bytes(values.type) else values)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _zoned(columns: Sequence[Column], schema: pa.Schema) -> pa.Schema:
    """The schema of `_with_texts`, with UTC for instants, which log batches carry without a time zone."""
    return pa.schema([_zoned_field(column, field) for column, field in zip(columns, schema, strict=True)])


def _zoned_field(column: Column, field: pa.Field) -> pa.Field:
    if column.data_type.root is DataTypeRoot.TIMESTAMP_LTZ:
        return field.with_type(pa.timestamp(field.type.unit, "UTC"))
    has_text = column.data_type.root in NESTED or is_bytes(field.type)
    return field.with_type(pa.string()) if has_text else field
