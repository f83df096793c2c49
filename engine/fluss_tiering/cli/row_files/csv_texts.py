"""Read those values of a CSV file from their text of which pyarrow's reader of CSV takes too much or too little.

It takes numbers for infinity that are too large for the column, and no time with a Z for a column without a time zone.
It knows the years from 0 to 9999 only, and no bytes in hexadecimal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.cli.row_files import hexadecimal
from fluss_tiering.cli.row_files.csv_errors import WrongValueError
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataTypeRoot

_FROM_TEXT: Final = frozenset(
    {
        DataTypeRoot.BYTES,
        DataTypeRoot.BINARY,
        DataTypeRoot.FLOAT,
        DataTypeRoot.DOUBLE,
        DataTypeRoot.DATE,
        DataTypeRoot.TIMESTAMP,
        DataTypeRoot.TIMESTAMP_LTZ,
    }
)
_BLANKS: Final = " \t"
"""What pyarrow's reader of CSV allows around a value."""
_FAR_PATTERN: Final = r"^(-[0-9]{4,6}|[0-9]{5,6})-"
"""The beginning of a date whose year pyarrow cannot read."""
_FAR: Final = re.compile(r"(?P<year>-[0-9]{4,6}|[0-9]{5,6})(?P<rest>-.*)", re.DOTALL)
_CYCLE_YEARS: Final = 400
"""After so many years, the calendar is the same again."""
_CYCLE_DAYS: Final = 146_097
_NEAR: Final = 2000
"""The first year of a cycle that pyarrow can read."""
_SECONDS_OF_DAY: Final = 86_400
_UNITS_OF_SECOND: Final[dict[str, int]] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def schema_of_texts(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema in which a file is read: that of the table, with text in some columns."""
    return pa.schema(
        [
            field.with_type(pa.string()) if column.data_type.root in _FROM_TEXT else field
            for column, field in zip(columns, arrow_schema(columns), strict=True)
        ]
    )


def from_texts(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return a batch of `schema_of_texts` with the Arrow types of the table.

    Raises:
        WrongValueError: A text is not a value of its column.
    """
    schema = arrow_schema(columns)
    for position, name in enumerate(batch.schema.names):
        index = schema.get_field_index(name)
        if index >= 0 and columns[index].data_type.root in _FROM_TEXT:
            field = schema.field(index)
            values = _values(batch.column(position), columns[index], field.type)
            batch = batch.set_column(position, field, values)
    return batch


def _values(texts: pa.StringArray, column: Column, kind: pa.DataType) -> pa.Array:
    match column.data_type.root:
        case DataTypeRoot.BYTES | DataTypeRoot.BINARY:
            return hexadecimal.bytes_of(column.name, texts, kind)
        case DataTypeRoot.FLOAT | DataTypeRoot.DOUBLE:
            return _floats(texts, column.name, kind)
        case DataTypeRoot.TIMESTAMP_LTZ:
            return _moments(pc.replace_substring_regex(texts, r"Z[ \t]*$", ""), texts, column.name, kind)
        case _:
            return _moments(texts, texts, column.name, kind)


def _floats(texts: pa.StringArray, name: str, kind: pa.DataType) -> pa.Array:
    values = _cast(pc.utf8_trim(texts, _BLANKS), texts, name, kind)
    # Of a number that is too large, the cast makes infinity.
    too_large = pc.and_not(pc.is_inf(values), pc.match_substring(texts, "inf", ignore_case=True))
    row = pc.index(too_large, True).as_py()
    if row >= 0:
        raise WrongValueError(row, name, texts[row].as_py())
    return values


def _moments(texts: pa.StringArray, said: pa.StringArray, name: str, kind: pa.DataType) -> pa.Array:
    texts = pc.utf8_trim(texts, _BLANKS)
    if not pc.any(pc.match_substring_regex(texts, _FAR_PATTERN)).as_py():
        return _cast(texts, said, name, kind)
    near, cycles = zip(*map(_near, texts.to_pylist()), strict=True)
    is_date = pa.types.is_date32(kind)
    number = pa.int32() if is_date else pa.int64()
    cycle = _CYCLE_DAYS if is_date else _CYCLE_DAYS * _SECONDS_OF_DAY * _UNITS_OF_SECOND[kind.unit]
    limit = 2 ** (number.bit_width - 1)
    numbers: list[int | None] = []
    for row, value in enumerate(_cast(pa.array(near, pa.string()), said, name, kind).cast(number).to_pylist()):
        moved = None if value is None else value + cycles[row] * cycle
        if moved is not None and not -limit <= moved < limit:
            raise WrongValueError(row, name, said[row].as_py())
        numbers.append(moved)
    return pa.array(numbers, number).cast(kind)


def _near(text: str | None) -> tuple[str | None, int]:
    """Return the text with a year that pyarrow can read, and the cycles of the calendar between the two."""
    match = _FAR.fullmatch(text or "")
    if match is None:
        return text, 0
    year = int(match["year"])
    near = _NEAR + year % _CYCLE_YEARS
    return f"{near}{match['rest']}", (year - near) // _CYCLE_YEARS


def _cast(texts: pa.StringArray, said: pa.StringArray, name: str, kind: pa.DataType) -> pa.Array:
    """Return the values of texts.

    Args:
        texts: The texts.
        said: The same texts as they are in the file, for an error.
        name: The name of the column.
        kind: The type of the values.

    Raises:
        WrongValueError: A text is no value of the type.
    """
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        row = _first_unreadable(texts, kind)
        raise WrongValueError(row, name, said[row].as_py()) from None


def _first_unreadable(texts: pa.StringArray, kind: pa.DataType) -> int:
    begin, end = 0, len(texts)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            texts.slice(begin, middle - begin).cast(kind)
            begin = middle
        except pa.ArrowInvalid:
            end = middle
    return begin
