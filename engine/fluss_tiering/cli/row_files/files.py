"""Read Parquet and CSV files as Arrow batches. Errors name the file."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet

from fluss_tiering.cli.common.options import CSV, PARQUET
from fluss_tiering.cli.row_files.csv_rows import check_names, csv_batches
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column

BATCH_ROWS: Final = 65_536
"""The number of rows in one write request: enough for columnar work, and few enough for one message."""
STANDARD_INPUT: Final = Path("-")
"""The name by which a command reads CSV from its standard input."""
_MAGIC_OF_PARQUET: Final = b"PAR1"
_EMPTY: Final = "Empty CSV file"
"""What pyarrow says of a CSV file without a line."""


def file_batches(path: Path, columns: Sequence[Column], null_values: list[str]) -> Iterator[pa.RecordBatch]:
    """Return the rows of the file in batches of at most `BATCH_ROWS`.

    Text in a CSV file is read as the types of the columns of the table. Bytes are written in hexadecimal there. One of
    the null values is NULL if it is not in quotes.

    Raises:
        FlussTieringError: INVALID_ROWS if a value cannot be read. The message names the file. Of a CSV file it also
            names the row, the column and the reason.
    """
    with errors_name(path, ErrorCode.INVALID_ROWS):
        if kind_of(path) == PARQUET:
            with pa.parquet.ParquetFile(path) as file:
                check_names(file.schema_arrow)
                yield from file.iter_batches(BATCH_ROWS)
            return
        with _whole(path) as source:
            for batch in csv_batches(source, columns, null_values):
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS)


def check_file(path: Path) -> None:
    """Check that there is a file whose name says what is in it, and that one of Parquet can be read.

    Raises:
        FlussTieringError: INVALID_REQUEST if there is none.
    """
    with errors_name(path):
        if kind_of(path) == PARQUET:
            pa.parquet.read_metadata(path)
        elif path != STANDARD_INPUT:
            path.stat()


def kind_of(path: Path) -> str:
    """Return how the name of a file ends, which says what is in it.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is neither a Parquet nor a CSV file.
    """
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


@contextmanager
def errors_name(path: Path, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> Iterator[None]:
    """Turn errors about a file in the block into FlussTieringError with a code. The message names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise FlussTieringError(code, f"there is no file {path}: check the path") from error
    except OSError as error:
        # The words of pyarrow name the file and the cause twice.
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        raise FlussTieringError(code, f"cannot read {path}: {reason}") from error
    except pa.ArrowException as error:
        empty = "it is empty: expected CSV whose first line names the columns"
        said = empty if _EMPTY in str(error) else str(error)
        raise FlussTieringError(code, f"cannot read {path}: {said}") from error


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yield a CSV file that can be read more than once: standard input and pipes are first copied into a file."""
    if path.is_file():
        yield path
        return
    with tempfile.NamedTemporaryFile(suffix=CSV) as copy:
        if path != STANDARD_INPUT:
            with path.open("rb") as stream:
                shutil.copyfileobj(stream, copy)
        elif sys.stdin is None:
            raise pa.ArrowInvalid("the command was started without a standard input")
        else:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name)
