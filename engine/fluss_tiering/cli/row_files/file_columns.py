"""The columns of a new table that are taken from a file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from fluss_tiering.cli.common.options import PARQUET
from fluss_tiering.cli.row_files.csv_rows import READ, check_names, check_quotes, convert_options
from fluss_tiering.cli.row_files.files import errors_name, kind_of
from fluss_tiering.formats.schema import columns_from_arrow
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column

_MANY_DIGITS: Final = r"([0-9]\.?){16}"
"""A DOUBLE keeps every number of up to 15 digits (IEEE 754, binary64)."""
_DIGITS_OF_DOUBLES: Final = 17
"""With so many digits, each DOUBLE has a text of its own."""


def columns_like(
    path: Path, given: Sequence[Column], primary_key: tuple[str, ...], null_values: list[str]
) -> tuple[Column, ...]:
    """Return the columns of a Parquet or CSV file.

    Args:
        given: Columns that replace those of the same names in the file.
        primary_key: The columns that are not nullable, whatever the file says.
        null_values: The values that are NULL in a CSV file.

    Raises:
        FlussTieringError: INVALID_REQUEST if the file cannot be read, if it lacks a given column, or if the type that
            is guessed for a column of a CSV file would change its values; INVALID_TABLE if no table can have the type
            of a column.
    """
    instead = {column.name: column for column in given}
    with errors_name(path):
        if kind_of(path) == PARQUET:
            schema = pa.parquet.read_schema(path)
            check_names(schema)
        else:
            schema = _guessed_schema(path, null_values, instead.keys())
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


def check_doubles(texts: pa.RecordBatch) -> None:
    """Refuse columns of which a DOUBLE would not keep all digits, such as large amounts of money and long numbers.

    Texts that another program has made of a DOUBLE may have many digits, too. They are not refused.

    Args:
        texts: The columns that would become a DOUBLE, as text.

    Raises:
        pa.ArrowInvalid: For the first such column.
    """
    for name, column in zip(texts.schema.names, texts.columns, strict=True):
        for text in column.filter(pc.match_substring_regex(column, _MANY_DIGITS)).to_pylist():
            number, written = float(text), Decimal(text.strip())
            digits = max(_DIGITS_OF_DOUBLES, len(written.as_tuple().digits))
            if written not in (Decimal(repr(number)), Decimal(f"{number:.{digits}g}")):
                raise pa.ArrowInvalid(
                    f"the column {name!r} looks like a DOUBLE, which does not keep the digits of {text.strip()}: "
                    "expected a --column of this name beside --like, of the type DECIMAL or STRING to keep them, or "
                    "DOUBLE for the nearest numbers"
                )


def _guessed_schema(path: Path, null_values: list[str], but_for: Collection[str]) -> pa.Schema:
    """Return the schema that pyarrow infers from the first block of a CSV file.

    Args:
        but_for: Columns whose types are known.
    """
    if not path.is_file():
        path.stat()
        raise pa.ArrowInvalid("it is no regular file, which can be read twice: expected one")
    check_quotes(path)
    options, parse = convert_options(null_values), pa.csv.ParseOptions(newlines_in_values=True)
    with pa.csv.open_csv(path, read_options=READ, parse_options=parse, convert_options=options) as reader:
        schema = reader.schema
    check_names(schema)
    doubles = [each.name for each in schema if each.type == pa.float64() and each.name not in but_for]
    if doubles:
        # The file is read once more, since pyarrow keeps no text of what it takes for numbers.
        options.include_columns = doubles
        options.column_types = dict.fromkeys(doubles, pa.string())
        with pa.csv.open_csv(path, read_options=READ, parse_options=parse, convert_options=options) as reader:
            check_doubles(reader.read_next_batch())
    return schema
