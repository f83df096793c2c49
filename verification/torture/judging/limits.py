"""What judges cannot read or mean otherwise, each with its name. Nothing is left out of a comparison without one."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import judges
from fluss_tiering.model.data_type import NESTED, DataType, DataTypeRoot
from fluss_tiering.model.table import Column
from torture.makers.predicates import Question
from torture.values import Value

FLUSS: Final = "fluss"
"""The judge of `fluss_reader.py`."""
_TIMESTAMPS: Final = {DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ}
_FLOATS: Final = {DataTypeRoot.FLOAT, DataTypeRoot.DOUBLE}
_INFINITIES: Final = (math.inf, -math.inf)
_DAYS_OF_CLICKHOUSE: Final = (-25_567, 120_529)
"""1900-01-01 and 2299-12-31."""
_NARROWER: Final = {DataTypeRoot.BIGINT: (-(2**31), 2**31 - 1), DataTypeRoot.DOUBLE: (-3.4e38, 3.4e38)}
"""The least and the greatest value of INT and FLOAT."""
_MICROS_OF_A_DAY: Final = 86_400 * 10**6
_GUESSED: Final = re.compile(r"[0-9]|null$|nan$", re.IGNORECASE)
"""Partition values that look like a number, a date or NULL."""
_DUCKDB_GUESSES: Final = "DuckDB takes partition values for numbers, dates or NULL when it applies equality deletes"


_REFUSALS: Final = (
    (
        judges.DUCKDB,
        "Expected vector of type INT64, but found vector of type INT32",
        "DuckDB applies no equality deletes by a key column that was widened since",
    ),
    (
        judges.DUCKDB,
        "of type VARCHAR, but found",
        _DUCKDB_GUESSES,
    ),
    (
        judges.DUCKDB,
        'Unsupported compression codec "LZ4"',
        "DuckDB reads no files that Spark compressed with lz4, which is not LZ4_RAW",
    ),
    (
        judges.PYICEBERG,
        "does not fit into precision inferred from first array element",
        "pyiceberg compares no wider DECIMAL with files from before a column was widened",
    ),
    (judges.CLICKHOUSE, "out of allowed Date32 range", "ClickHouse refuses files with dates after the year 9999"),
    (
        judges.CLICKHOUSE,
        "exceeds the range of type Date32",
        "ClickHouse refuses partitions of dates beyond its own range",
    ),
    (judges.CLICKHOUSE, "Tuple element name 'null' is reserved", "ClickHouse has no field with the name null"),
)
"""What a judge says when it meets a limit that only shows in its files."""


def refusal_limit(judge: str, text: str) -> str | None:
    """Return which limit a judge's refusal shows; None if it shows none that is known."""
    return next((name for each, part, name in _REFUSALS if each == judge and part in text), None)


def roots_of(data_type: DataType) -> Iterable[DataTypeRoot]:
    """Yield the root of a type and those of its parts."""
    yield data_type.root
    for field in data_type.fields:
        yield from roots_of(field.data_type)


def _field_names(data_type: DataType) -> Iterable[str]:
    for field in data_type.fields:
        yield field.name
        yield from _field_names(field.data_type)


def table_limit(
    judge: str,
    columns: Sequence[Column],
    *,
    has_deletes: bool,
    keys: Mapping[str, Sequence[str]],
    on_s3: bool = False,
) -> str | None:
    """Return why a judge cannot read a table at all; None if it can.

    Args:
        judge: The judge.
        columns: The columns of the table.
        has_deletes: Whether it may have equality deletes.
        keys: The names of the columns that its partitions are made of, and the values that stand in the paths of files.
        on_s3: Whether its files are on S3.
    """
    roots = {root for column in columns for root in roots_of(column.data_type)}
    if judge == judges.SPARK and DataTypeRoot.TIME in roots:
        return "Spark reads no TIME from Iceberg"
    if (
        judge == judges.CLICKHOUSE
        and has_deletes
        and any(_may_be_time_of_a_key(column.data_type) for column in columns)
    ):
        return "ClickHouse applies no equality deletes by a TIME that has a part of a second"
    if judge == judges.PYICEBERG and has_deletes:
        return "pyiceberg reads no equality deletes"
    if judge == judges.PYICEBERG and on_s3:
        return "pyiceberg reads no files of S3 elsewhere than there"
    if judge == judges.DUCKDB and has_deletes and any(map(_GUESSED.match, itertools.chain(*keys.values()))):
        return _DUCKDB_GUESSES
    if judge == judges.DUCKDB and not all(name.isascii() for name in keys):
        return "DuckDB refuses a manifest with a name beyond ASCII, and ends its process"
    return None


def _may_be_time_of_a_key(data_type: DataType) -> bool:
    return data_type.root is DataTypeRoot.TIME and not data_type.nullable


def column_limit(judge: str, column: Column, values: Sequence[Value]) -> str | None:
    """Return why a judge's values of a column cannot be compared; None if they can."""
    if judge == judges.CLICKHOUSE:
        if any(_any_part(column.data_type, value, _out_of_clickhouse) for value in values):
            return "ClickHouse has dates and timestamps of the years 1900 to 2299 only"
        if any(_any_part(column.data_type, value, _null_nested) for value in values):
            return "ClickHouse has no null ARRAY, MAP or ROW"
        if DataTypeRoot.TIME in roots_of(column.data_type):
            return "ClickHouse has no TIME"
        if "null" in _field_names(column.data_type):
            return "ClickHouse has no field with the name null"
    if judge == FLUSS and column.data_type.root in NESTED:
        return "Fluss's reader is not asked about nested columns"
    if judge == FLUSS and column.data_type.root is DataTypeRoot.TIME:
        return "Fluss 0.9.1 reads a TIME after the first 2 s of a day wrong: it cuts nanoseconds to 32 bits"
    if judge == judges.SPARK and any(_any_part(column.data_type, value, _null_row_with_required) for value in values):
        return "Spark hands no null ROW with NOT NULL fields to Arrow"
    if judge == judges.PYICEBERG and any(_any_part(column.data_type, value, _null_list) for value in values):
        return "pyiceberg reads a null ARRAY or MAP as an empty one"
    return None


def question_limit(judge: str, question: Question, columns: Sequence[Column], values: Sequence[Value]) -> str | None:
    """Return why a judge's answer to a question cannot be compared; None if it can."""
    column = columns[question.places[0]]
    if judge == judges.CLICKHOUSE:
        if question.data_type.root in _FLOATS and any(_any_part(column.data_type, value, _is_nan) for value in values):
            return "ClickHouse compares NaN as IEEE 754 does"
        if question.value is not None and _out_of_clickhouse(question.data_type, question.value):
            return "ClickHouse has dates and timestamps of the years 1900 to 2299 only"
        return column_limit(judge, column, values)
    if judge == judges.PYICEBERG:
        if question.value is not None and question.data_type.root in {*_TIMESTAMPS, DataTypeRoot.DATE}:
            return "pyiceberg is asked for no timestamps and dates, which need not fit Python's"
        if question.data_type.root in _FLOATS and any(_any_part(column.data_type, value, _is_nan) for value in values):
            return "pyiceberg compares NaN as IEEE 754 does"
        if question.data_type.root is DataTypeRoot.FLOAT and question.value in _INFINITIES:
            return "pyiceberg takes an infinity for a number beyond all FLOATs"
        if len(question.places) > 1 or question.data_type.fields:
            return "pyiceberg is not asked about nested columns, of which it projects only some"
        if question.operator == "<>" and None in values:
            return "pyiceberg finds nulls by <> in files from before their column was added"
        if None in values and _beyond_narrower(question):
            return "pyiceberg finds nulls by numbers beyond the narrower type in files from before a column was widened"
        if "." in column.name:
            return "pyiceberg takes a dot in a name for a path"
        return column_limit(judge, column, values)
    return None


def _any_part(data_type: DataType, value: Value, found: Callable[[DataType, Value], bool]) -> bool:
    if found(data_type, value):
        return True
    if value is None:
        return False
    types = [field.data_type for field in data_type.fields]
    parts: list[tuple[DataType, Any]] = []
    if data_type.root is DataTypeRoot.ARRAY:
        parts = [(types[0], each) for each in value]
    elif data_type.root is DataTypeRoot.MAP:
        parts = [(kind, each) for pair in value for kind, each in zip(types, pair, strict=True)]
    elif data_type.root is DataTypeRoot.ROW:
        parts = list(zip(types, value, strict=True))
    return any(_any_part(kind, each, found) for kind, each in parts)


def _out_of_clickhouse(data_type: DataType, value: Value) -> bool:
    if value is None or data_type.root not in {*_TIMESTAMPS, DataTypeRoot.DATE}:
        return False
    days = value if data_type.root is DataTypeRoot.DATE else math.floor(value / _MICROS_OF_A_DAY)
    return not _DAYS_OF_CLICKHOUSE[0] <= days < _DAYS_OF_CLICKHOUSE[1]


def _beyond_narrower(question: Question) -> bool:
    """Return whether the value of a question is none of the type from which its column may have been widened."""
    if question.value is None or question.data_type.root not in _NARROWER:
        return False
    least, most = _NARROWER[question.data_type.root]
    return not least <= question.value <= most


def _is_nan(data_type: DataType, value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _null_nested(data_type: DataType, value: Value) -> bool:
    return value is None and data_type.root in {DataTypeRoot.ARRAY, DataTypeRoot.MAP, DataTypeRoot.ROW}


def _null_list(data_type: DataType, value: Value) -> bool:
    return value is None and data_type.root in {DataTypeRoot.ARRAY, DataTypeRoot.MAP}


def _null_row_with_required(data_type: DataType, value: Value) -> bool:
    return value is None and _has_required_field(data_type)


def _has_required_field(data_type: DataType) -> bool:
    """Return whether a null ROW makes a NOT NULL field null: its own, or one of a ROW that is null along with it."""
    return data_type.root is DataTypeRoot.ROW and any(
        not field.data_type.nullable or _has_required_field(field.data_type) for field in data_type.fields
    )
