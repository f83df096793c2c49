"""Parquet and CSV files as Arrow batches, with errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fluss_tiering.cli import hexadecimal
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

BATCH_ROWS: Final = 65_536
"""Rows of one write request: large enough for columns, small enough for a message."""

_CSV: Final = ".csv"
_PARQUET: Final = ".parquet"


def file_schema(path: Path, null_values: list[str]) -> pa.Schema:
    """The Arrow schema of a Parquet file, or what the first block of a CSV file looks like.

    Raises:
        FlussTieringError: INVALID_REQUEST naming the file.
    """
    with _errors_name(path):
        if _kind(path) == _PARQUET:
            schema = pa.parquet.read_schema(path)
        else:
            with pa.csv.open_csv(path, convert_options=_convert(null_values)) as reader:
                schema = reader.schema
        _check_names(schema)
        return schema


def file_batches(path: Path, schema: pa.Schema, null_values: list[str]) -> Iterator[pa.RecordBatch]:
    """The file's rows in batches of at most `BATCH_ROWS`; CSV text is read as the types of `schema`, bytes in
    hexadecimal.

    Raises:
        FlussTieringError: INVALID_ROWS naming the file and what pyarrow says of the value.
    """
    with _errors_name(path, ErrorCode.INVALID_ROWS):
        if _kind(path) == _PARQUET:
            with pa.parquet.ParquetFile(path) as file:
                _check_names(file.schema_arrow)
                yield from file.iter_batches(BATCH_ROWS)
            return
        options = _convert(null_values)
        options.column_types = hexadecimal.schema_of_texts(schema)
        with pa.csv.open_csv(path, convert_options=options) as reader:
            _check_names(reader.schema)
            for batch in reader:
                rows = hexadecimal.from_texts(batch, schema)
                for start in range(0, rows.num_rows, BATCH_ROWS):
                    yield rows.slice(start, BATCH_ROWS)


def row_count(path: Path) -> int | None:
    """How many rows a Parquet file says it has; None for CSV, which does not say."""
    with _errors_name(path):
        return pa.parquet.read_metadata(path).num_rows if _kind(path) == _PARQUET else None


def _convert(null_values: list[str]) -> pa.csv.ConvertOptions:
    return pa.csv.ConvertOptions(null_values=null_values, strings_can_be_null=True)


def _kind(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in {_CSV, _PARQUET}:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"{path} is neither a {_PARQUET} nor a {_CSV} file by its name"
        )
    return kind


def _check_names(schema: pa.Schema) -> None:
    """Names are decoded when they are first looked at: here, where an error can still name the file."""
    try:
        _ = schema.names
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"a column's name is not UTF-8 ({error}): expected the file's text in UTF-8") from error


@contextmanager
def _errors_name(path: Path, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise FlussTieringError(code, f"cannot read {path}: {error}") from error
