"""Read the rows of a CSV file in the types of a table. No value changes in silence, and errors have the row.

pyarrow's reader of CSV takes numbers for infinity that are too large, and knows no bytes in hexadecimal and no time
with a Z. Columns of such types are read as text, and their text is cast.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.table import Column, DataTypeRoot

READ: Final = pa.csv.ReadOptions(use_threads=False, block_size=33 * 2**20)
"""With several threads, pyarrow does not know the number of a row that it cannot read. A row must fit into a block: it
may have 16 MiB in a request, which are 32 MiB as hexadecimal digits."""
_BYTES: Final = frozenset({DataTypeRoot.BYTES, DataTypeRoot.BINARY})
_NUMBERS: Final = frozenset({DataTypeRoot.FLOAT, DataTypeRoot.DOUBLE})
_FROM_TEXT: Final = frozenset(
    {*_BYTES, *_NUMBERS, DataTypeRoot.DATE, DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ}
)
_BLANKS: Final = " \t"
"""What pyarrow's reader of CSV allows around a value."""
_REFUSED: Final = re.compile(
    r"(?:In CSV column #(?P<column>\d+)|CSV parse error): (?:Row #(?P<row>\d+): )?(?P<reason>.*)", re.DOTALL
)
"""What pyarrow says of a row. It numbers columns from 0, and rows without empty lines."""
_SHOWN: Final = 200
"""How many characters of a reason an error shows at most: it may have the whole value."""
_LARGEST_VALUE: Final = 2**31 - 1
_CHUNK_BYTES: Final = 2**20


class _WrongValueError(Exception):
    def __init__(self, row: int, column: str, reason: str) -> None:
        super().__init__(row, column, reason)
        self.row = row
        self.column = column
        self.reason = reason


def csv_batches(path: Path, columns: Sequence[Column], null_values: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file in the Arrow types of the columns of a table.

    Args:
        path: The file. It is read more than once.
        columns: The columns of the table. The file may lack some of them.
        null_values: The texts that are NULL if they are not in quotes.

    Raises:
        pa.ArrowInvalid: If a value cannot be read, or a column cannot hold it. The message has the row, the name and
            the type of the column, and the reason. The row with the names is 1, and empty lines do not count.
    """
    check_quotes(path)
    options = convert_options(null_values)
    options.column_types = _read_schema([each for each in columns if each.data_type.root not in NESTED])
    # In a file of one column, an empty line can be a row with NULL.
    has_empty_rows = len(columns) == 1 and columns[0].data_type.nullable
    parse = pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=not has_empty_rows)
    before = 2  # pyarrow counts rows from 1, and the one with the names is one of them.
    try:
        with pa.csv.open_csv(path, read_options=READ, parse_options=parse, convert_options=options) as reader:
            check_names(reader.schema)
            _check_readable(columns, reader.schema.names)
            for batch in reader:
                yield _in_types_of_table(batch, columns)
                before += batch.num_rows
    except _WrongValueError as error:
        raise pa.ArrowInvalid(_error_text(before + error.row, error.column, columns, error.reason)) from error
    except pa.ArrowInvalid as error:
        found = _REFUSED.search(str(error))
        if found is None:
            raise
        with _text(path) as file:
            names = next(csv.reader(file), [])
        name = names[int(found["column"])] if found["column"] and int(found["column"]) < len(names) else None
        raise pa.ArrowInvalid(_error_text(found["row"], name, columns, found["reason"])) from error


def convert_options(null_values: list[str]) -> pa.csv.ConvertOptions:
    """Return how texts are read. As in PostgreSQL's COPY, a text in quotes is never NULL, so that "" is a text."""
    return pa.csv.ConvertOptions(null_values=null_values, strings_can_be_null=True, quoted_strings_can_be_null=False)


def check_names(schema: pa.Schema) -> None:
    """Decode the names of the columns now, where an error can still name the file.

    Raises:
        pa.ArrowInvalid: If a name is not UTF-8.
    """
    try:
        _ = schema.names
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"the name of a column is not UTF-8 ({error}): expected text in UTF-8") from error


def check_quotes(path: Path) -> None:
    """Refuse a file with a quote that nothing closes. pyarrow would take all that follows it for one value.

    Raises:
        pa.ArrowInvalid: If there is such a quote. The message has the line on which its row begins.
    """
    # If all quotes are closed their number is even, and counting them is quick.
    with path.open("rb") as file:
        if not sum(part.count(b'"') for part in iter(lambda: file.read(_CHUNK_BYTES), b"")) % 2:
            return
    begin = 1
    with _text(path) as file:
        reader = csv.reader(file, strict=True)
        try:
            for _ in reader:
                begin = reader.line_num + 1
        except csv.Error as error:
            raise pa.ArrowInvalid(
                f'the row that begins on line {begin} has a quote that is not closed ({error}): expected " at the end '
                'of its value, and "" for each quote within it'
            ) from error


def _read_schema(columns: Sequence[Column]) -> pa.Schema:
    fields = zip(columns, arrow_schema(columns), strict=True)
    return pa.schema(
        [field.with_type(pa.string()) if each.data_type.root in _FROM_TEXT else field for each, field in fields]
    )


def _check_readable(columns: Sequence[Column], names: Sequence[str]) -> None:
    nested = [each for each in columns if each.data_type.root in NESTED and each.name in names]
    if nested:
        found = ", ".join(f"{each.name!r} ({each.data_type})" for each in nested)
        raise pa.ArrowInvalid(f"CSV cannot hold values of {found}: expected a Parquet file")


def _in_types_of_table(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    for column, field in zip(columns, arrow_schema(columns), strict=True):
        position = batch.schema.get_field_index(column.name)
        if position >= 0:
            values = batch.column(position)
            if column.data_type.root in _FROM_TEXT:
                values = _from_texts(values, column, field.type)
                batch = batch.set_column(position, field, values)
            _check_values(values, column)
    return batch


def _from_texts(texts: pa.StringArray, column: Column, kind: pa.DataType) -> pa.Array:
    root = column.data_type.root
    if root in _BYTES:
        return _bytes_of_hexadecimal(texts, column, kind)
    trimmed = pc.utf8_trim(texts, _BLANKS)
    if root is DataTypeRoot.TIMESTAMP_LTZ:
        trimmed = pc.replace_substring_regex(trimmed, "Z$", "")
    try:
        values = trimmed.cast(kind)
    except pa.ArrowInvalid:
        for row, text in enumerate(trimmed):
            try:
                text.cast(kind)
            except pa.ArrowInvalid as error:
                raise _WrongValueError(row, column.name, str(error)) from None
        raise
    if root in _NUMBERS:
        # Of a number that is too large, the cast makes infinity.
        too_large = pc.and_not(pc.is_inf(values), pc.match_substring(texts, "inf", ignore_case=True))
        _refuse_first(too_large, column, texts, "the number is too large")
    return values


def _bytes_of_hexadecimal(texts: pa.StringArray, column: Column, kind: pa.DataType) -> pa.Array:
    values: list[bytes | None] = []
    width = column.data_type.length if column.data_type.root is DataTypeRoot.BINARY else None
    for row, text in enumerate(texts.to_pylist()):
        try:
            value = None if text is None else bytes.fromhex(text)
        except ValueError:
            raise _WrongValueError(row, column.name, f"{text!r} is not pairs of hexadecimal digits") from None
        if value is not None and width not in (None, len(value)):
            raise _WrongValueError(row, column.name, f"{text!r} is not {width} bytes, each as two hexadecimal digits")
        values.append(value)
    return pa.array(values, kind)


def _check_values(values: pa.Array, column: Column) -> None:
    """Refuse what pyarrow's type holds, and the type of the column does not."""
    kind = column.data_type
    if not kind.nullable and values.null_count:
        _refuse_first(pc.is_null(values), column, values, "there is no value")
    if kind.root is DataTypeRoot.CHAR:
        _refuse_first(pc.greater(pc.utf8_length(values), kind.length), column, values, "the text is too long")
    if kind.root is DataTypeRoot.DECIMAL:
        # pyarrow's reader of CSV checks only that a number fits into 128 bits.
        largest = pa.scalar(Decimal((0, (9,) * kind.precision, -kind.scale)), values.type)
        _refuse_first(pc.greater(pc.abs(values), largest), column, values, "the number has too many digits")


def _refuse_first(wrong: pa.BooleanArray, column: Column, values: pa.Array, why: str) -> None:
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        value = values[row].as_py()
        raise _WrongValueError(row, column.name, why if value is None else f"{why}: {str(value)!r}")


def _error_text(row: int | str | None, name: str | None, columns: Sequence[Column], reason: str) -> str:
    kind = next((f" ({each.data_type})" for each in columns if each.name == name), "")
    places = [f"row {row}"] if row else []
    places += [f"column {name!r}{kind}"] if name is not None else []
    return f"{', '.join(places)}: {reason if len(reason) <= _SHOWN else f'{reason[:_SHOWN]}…'}"


def _text(path: Path) -> TextIO:
    csv.field_size_limit(_LARGEST_VALUE)
    return path.open(encoding="utf-8-sig", errors="replace", newline="")
