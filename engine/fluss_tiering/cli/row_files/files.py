"""Read Parquet and CSV files as Arrow batches. Errors name the file."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fluss_tiering.cli.common.options import CSV, PARQUET
from fluss_tiering.cli.row_files.csv_errors import CsvPlaces, WrongValueError, readable, unreadable_columns
from fluss_tiering.cli.row_files.csv_numbers import check_doubles
from fluss_tiering.cli.row_files.csv_quotes import line_of_open_quote
from fluss_tiering.cli.row_files.csv_texts import from_texts, schema_of_texts
from fluss_tiering.cli.row_files.csv_values import check_values
from fluss_tiering.cli.row_files.standard_input import RememberedInput, remembered_input
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column

BATCH_ROWS: Final = 65_536
"""The number of rows in one write request: enough for columnar work, and few enough for one message."""

STANDARD_INPUT: Final = Path("-")
"""The name by which a command reads CSV from its standard input."""
_MAGIC_OF_PARQUET: Final = b"PAR1"
_EMPTY: Final = "Empty CSV file"
"""What pyarrow says of a CSV file without a line."""
_NO_NAMES: Final = "cannot infer number of columns"
"""A part of what pyarrow says if the line with the names does not end within the first block."""
_WITHOUT_NAMES: Final = "it is empty: expected CSV whose first line names the columns"
_READ: Final = pa.csv.ReadOptions(use_threads=False, block_size=33 * 2**20)
"""With several threads, pyarrow does not know the number of a row that it cannot read. A row must fit into a block: it
may have 16 MiB in a request, which are 32 MiB as hexadecimal digits."""
_COUNTED_AT_ONCE: Final = 2**20
_WITH_LINES: Final = pa.csv.ParseOptions(newlines_in_values=True)
"""Without this, pyarrow cuts a long file at any end of a line, also at one within quotes."""


def file_schema(path: Path, null_values: list[str], but_for: Collection[str] = ()) -> pa.Schema:
    """Return the Arrow schema of a Parquet file, or the schema inferred from the first block of a CSV file.

    Args:
        path: The file.
        null_values: The values that are NULL in a CSV file.
        but_for: Columns whose types are known, so that those of the file do not matter.

    Raises:
        FlussTieringError: INVALID_REQUEST if the file cannot be read, or if a DOUBLE would not keep the digits of a
            number in a CSV file. The message names the file.
    """
    with _errors_name(path):
        if _kind(path) != PARQUET:
            return _guessed_schema(path, null_values, but_for)
        schema = pa.parquet.read_schema(path)
        _check_names(schema)
        return schema


def file_batches(path: Path, columns: Sequence[Column], null_values: list[str]) -> Iterator[pa.RecordBatch]:
    """Return the rows of the file in batches of at most `BATCH_ROWS`.

    Text in a CSV file is read as the types of the columns of the table. Bytes are written in hexadecimal there. One of
    the null values is NULL if it is not in quotes.

    Raises:
        FlussTieringError: INVALID_ROWS if a value cannot be read. The message names the file. Of a CSV file it also
            names the line, the column, the value and what is expected.
    """
    with _errors_name(path, ErrorCode.INVALID_ROWS):
        if _kind(path) == PARQUET:
            with pa.parquet.ParquetFile(path) as file:
                _check_names(file.schema_arrow)
                yield from file.iter_batches(BATCH_ROWS)
            return
        if path != STANDARD_INPUT:
            yield from _csv_batches(path, columns, null_values)
            return
        if sys.stdin is None:
            raise pa.ArrowInvalid("the command was started without a standard input")
        with remembered_input(sys.stdin.buffer) as source:
            yield from _csv_batches(source, columns, null_values)


def _csv_batches(
    source: Path | RememberedInput, columns: Sequence[Column], null_values: list[str]
) -> Iterator[pa.RecordBatch]:
    if isinstance(source, Path) and (line := line_of_open_quote(source)) is not None:
        raise pa.ArrowInvalid(_open_quote(line))
    options = _convert(null_values)
    options.column_types = schema_of_texts(readable(columns))
    # In a file of one column, an empty line can be a row with NULL.
    has_empty_rows = len(columns) == 1 and columns[0].data_type.nullable
    parse = pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=not has_empty_rows)
    places = CsvPlaces(source, tuple(columns), has_empty_rows)

    def open_quote(*, so_far: bool = False) -> int | None:
        return source.line_of_open_quote(so_far=so_far) if isinstance(source, RememberedInput) else None

    before = 0
    try:
        with pa.csv.open_csv(source, read_options=_READ, parse_options=parse, convert_options=options) as reader:
            _check_names(reader.schema)
            if reason := unreadable_columns(columns, reader.schema.names):
                raise pa.ArrowInvalid(reason)
            for batch in reader:
                # The block in which standard input ends has the row. No row of that block is written.
                if open_quote() is not None:
                    break
                rows = from_texts(batch, columns)
                check_values(rows, columns)
                for start in range(0, rows.num_rows, BATCH_ROWS):
                    yield rows.slice(start, BATCH_ROWS)
                before += batch.num_rows
    except WrongValueError as error:
        raise pa.ArrowInvalid(places.of_value(error, before)) from error
    except pa.ArrowInvalid as error:
        # pyarrow says this before it has seen the end of the stream.
        if open_quote(so_far=_NO_NAMES in str(error)) is None:
            raise pa.ArrowInvalid(places.of_error(str(error))) from error
    if (line := open_quote(so_far=True)) is not None:
        raise pa.ArrowInvalid(_open_quote(line))


def _guessed_schema(path: Path, null_values: list[str], but_for: Collection[str]) -> pa.Schema:
    if (line := line_of_open_quote(path)) is not None:
        raise pa.ArrowInvalid(_open_quote(line))
    options = _convert(null_values)
    with pa.csv.open_csv(path, read_options=_READ, parse_options=_WITH_LINES, convert_options=options) as reader:
        schema = reader.schema
    _check_names(schema)
    doubles = [each.name for each in schema if each.type == pa.float64() and each.name not in but_for]
    if doubles:
        # The file is read once more, since pyarrow keeps no text of what it takes for numbers.
        options.include_columns = doubles
        options.column_types = dict.fromkeys(doubles, pa.string())
        with pa.csv.open_csv(path, read_options=_READ, parse_options=_WITH_LINES, convert_options=options) as reader:
            check_doubles(path, reader.read_next_batch())
    return schema


def row_count(path: Path) -> int | None:
    """Return the number of rows of a Parquet file, or of the lines of a CSV file behind its first one.

    A CSV file whose values have ends of lines has fewer rows. It is None for what is no regular file.

    Raises:
        FlussTieringError: INVALID_REQUEST if there is no such file, or if its rows cannot be counted.
    """
    with _errors_name(path):
        if _kind(path) == PARQUET:
            return int(pa.parquet.read_metadata(path).num_rows)
        if path == STANDARD_INPUT:
            return None
        path.stat()
        return _lines_behind_the_first(path) if path.is_file() else None


def _lines_behind_the_first(path: Path) -> int:
    lines, last = -1, b"\n"
    with path.open("rb") as file:
        while part := file.read(_COUNTED_AT_ONCE):
            lines += part.count(b"\n")
            last = part[-1:]
    return max(0, lines + (last != b"\n"))


def _open_quote(line: int) -> str:
    return f'the row that begins on line {line} has a quote that is not closed: expected " at the end of its value'


def _convert(null_values: list[str]) -> pa.csv.ConvertOptions:
    # As in PostgreSQL's COPY, what is in quotes is never NULL. Otherwise an empty text could not be told from NULL.
    return pa.csv.ConvertOptions(null_values=null_values, strings_can_be_null=True, quoted_strings_can_be_null=False)


def _kind(path: Path) -> str:
    kind = CSV if path == STANDARD_INPUT else path.suffix.lower()
    if kind not in {CSV, PARQUET}:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{path} does not end with {PARQUET} or {CSV}: expected a Parquet or a CSV file, "
            "or - for CSV from standard input",
        )
    if path != STANDARD_INPUT and path.is_dir():
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{path} is a folder: expected a file")
    if kind == CSV and path.is_file():
        with path.open("rb") as file:
            if file.read(len(_MAGIC_OF_PARQUET)) == _MAGIC_OF_PARQUET:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"{path} is a Parquet file: expected a name that ends with {PARQUET}, or a CSV file",
                )
    return kind


def _check_names(schema: pa.Schema) -> None:
    """Decode the column names now, where an error can still name the file."""
    try:
        _ = schema.names
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"the name of a column is not UTF-8 ({error}): expected text in UTF-8") from error


@contextmanager
def _errors_name(path: Path, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise FlussTieringError(code, f"there is no file {path}: check the path") from error
    except OSError as error:
        # The words of pyarrow name the file and the cause twice.
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        raise FlussTieringError(code, f"cannot read {path}: {reason}") from error
    except pa.ArrowException as error:
        said = _WITHOUT_NAMES if str(error) == _EMPTY else str(error)
        raise FlussTieringError(code, f"cannot read {path}: {said}") from error
