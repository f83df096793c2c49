"""Fluss rows for Spark: in the Arrow types of its own types, and filtered with its semantics of null and NaN."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, DefaultContext
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as ds

from fluss_tiering.formats.micros import as_type, micros_type
from fluss_tiering.model.table import Column

_PUSHES_FILTERS: Final = hasattr(ds, "Filter")
"""Whether Spark passes filters to Python sources, as it does from version 4.1 on."""
_TEXT_MATCHES: Final[Mapping[type, Callable[[pa.Array, str], pa.BooleanArray]]] = (
    {
        ds.StringStartsWith: pc.starts_with,
        ds.StringEndsWith: pc.ends_with,
        ds.StringContains: pc.match_substring,
    }
    if _PUSHES_FILTERS
    else {}
)
_COMPARISONS: Final[Mapping[type, Callable[[pa.Array, pa.Scalar], pa.BooleanArray]]] = (
    {
        ds.EqualTo: pc.equal,
        ds.GreaterThan: pc.greater,
        ds.GreaterThanOrEqual: pc.greater_equal,
        ds.LessThan: pc.less,
        ds.LessThanOrEqual: pc.less_equal,
    }
    if _PUSHES_FILTERS
    else {}
)
_ABOVE: Final = (ds.GreaterThan, ds.GreaterThanOrEqual) if _PUSHES_FILTERS else ()
_BEFORE_GAP: Final = date(1582, 10, 3)
_AFTER_GAP: Final = date(1582, 10, 27)
"""Spark may have moved values between these days. Time zones add up to two days to the ten that are lacking."""


def spark_arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema in which Spark expects these columns."""
    return pa.schema([(column.name, micros_type(column.data_type)) for column in columns])


def spark_rows(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return these columns of the rows, as Spark expects them."""
    schema = spark_arrow_schema(columns)
    arrays = [as_type(rows.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def can_evaluate(condition: ds.Filter, schema: pa.Schema) -> bool:
    """Return whether `matching` gives the same result as Spark for this filter on rows of this schema."""
    match condition:
        case ds.Not(child=child):
            return can_evaluate(child, schema)
        case ds.IsNull() | ds.IsNotNull():
            return _has_column(condition, schema)
        case ds.In(value=values):
            # Arrow's sets distinguish -0.0 from 0.0.
            return (
                _has_column(condition, schema)
                and not pa.types.is_floating(_type(condition, schema))
                and all(_holds(_type(condition, schema), value) for value in values)
            )
        case ds.EqualNullSafe(value=value):
            return _has_column(condition, schema) and _holds(_type(condition, schema), value)
        case _ if type(condition) in {*_COMPARISONS, *_TEXT_MATCHES}:
            return (
                _has_column(condition, schema)
                and condition.value is not None
                and _holds(_type(condition, schema), condition.value)
            )
    return False


def matching(rows: pa.RecordBatch, conditions: Sequence[ds.Filter]) -> pa.RecordBatch:
    """Return the rows for which all filters are true, not false or null."""
    if not conditions:
        return rows
    return rows.filter(functools.reduce(pc.and_kleene, (_evaluate(each, rows) for each in conditions)))


def _has_column(condition: ds.Filter, schema: pa.Schema) -> bool:
    return len(condition.attribute) == 1 and condition.attribute[0] in schema.names


def _type(condition: ds.Filter, schema: pa.Schema) -> pa.DataType:
    return schema.field(condition.attribute[0]).type


def _holds(kind: pa.DataType, value: Any) -> bool:  # noqa: ANN401 - a value of any column type
    # Spark 4.1 passes decimals rounded to the default precision of Python's arithmetic.
    if isinstance(value, Decimal) and len(value.as_tuple().digits) >= DefaultContext.prec:
        return False
    # In Spark, NaN equals itself and is greater than all other values; in Arrow it is not.
    if isinstance(value, float) and math.isnan(value):
        return False
    # Spark passes dates and times on through Java's calendar, which lacks the days from 1582-10-05 to 1582-10-14: they
    # arrive as others.
    if isinstance(value, date) and _BEFORE_GAP < _day(value) < _AFTER_GAP:
        return False
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def _day(value: date) -> date:
    return value.date() if isinstance(value, datetime) else value


def _evaluate(condition: ds.Filter, rows: pa.RecordBatch) -> pa.BooleanArray:
    if isinstance(condition, ds.Not):
        return pc.invert(_evaluate(condition.child, rows))
    column = rows.column(condition.attribute[0])
    match condition:
        case ds.IsNull():
            return column.is_null()
        case ds.IsNotNull():
            return column.is_valid()
        case ds.In(value=values):
            return _in(column, values)
        case ds.EqualNullSafe(value=None):
            return column.is_null()
        case ds.EqualNullSafe(value=value):
            return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), fill_value=False)
    if matches := _TEXT_MATCHES.get(type(condition)):
        return matches(column, condition.value)
    compared = _COMPARISONS[type(condition)](column, pa.scalar(condition.value, column.type))
    if isinstance(condition, _ABOVE) and pa.types.is_floating(column.type):
        return pc.or_kleene(compared, pc.is_nan(column))
    return compared


def _in(column: pa.Array, values: Sequence[Any]) -> pa.BooleanArray:
    """Return null if the value is null, or if it equals none of `values` and one of these is null."""
    known = [value for value in values if value is not None]
    found = pc.is_in(column, value_set=pa.array(known, column.type))
    otherwise = None if len(known) < len(values) else False
    return pc.if_else(column.is_valid(), pc.if_else(found, True, pa.scalar(otherwise, pa.bool_())), None)
