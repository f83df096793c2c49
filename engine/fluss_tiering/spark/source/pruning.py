"""Spark's filters as conditions by which log batches can be left out.

Filters that no statistics can decide have no condition. A condition may be wider than its filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource as ds

from fluss_tiering.formats.log.conditions import Condition, InRanges, Nullness, Range
from fluss_tiering.formats.log.statistics import WITH_STATISTICS, StatisticsValue
from fluss_tiering.formats.micros import micros_type
from fluss_tiering.formats.schema import UNIT_PRECISION, time_unit
from fluss_tiering.model.table import Column, DataType, DataTypeRoot

_TIMESTAMPS: Final = frozenset({DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ})
_TEXTS: Final = frozenset({DataTypeRoot.STRING})
_NANOS_PER_MICRO: Final = 1000
_NANO_DIGITS: Final = 9
_MICRO_DIGITS: Final = UNIT_PRECISION["us"]
_MAX_POINTS: Final = 100
"""More values of an IN become the range that has them all."""
_LAST_CHARACTER: Final = "\U0010ffff"
_SURROGATES: Final = (0xD800, 0xE000)


def conditions_of(filters: Sequence[ds.Filter], columns: Sequence[Column]) -> tuple[Condition, ...]:
    """Return the conditions that rows meet if they match all filters.

    Args:
        filters: Filters that `can_evaluate` accepts for these columns.
        columns: The columns.
    """
    types = {column.name: column.data_type for column in columns if column.data_type.root in WITH_STATISTICS}
    return tuple(each for condition in filters for each in _conditions(condition, types))


def _conditions(condition: ds.Filter, types: Mapping[str, DataType]) -> Iterator[Condition]:
    if isinstance(condition, ds.Not):
        if isinstance(condition.child, ds.IsNull):
            yield from _nullness(condition.child, types, is_null=False)
        elif isinstance(condition.child, ds.IsNotNull):
            yield from _nullness(condition.child, types, is_null=True)
        return
    match condition:
        case ds.IsNull() | ds.EqualNullSafe(value=None):
            yield from _nullness(condition, types, is_null=True)
            return
        case ds.IsNotNull():
            yield from _nullness(condition, types, is_null=False)
            return
    name = condition.attribute[0]
    if name in types and types[name].root is not DataTypeRoot.TIME:
        ranges = _ranges(condition, types[name])
        if ranges is not None:
            yield InRanges(name, ranges)


def _nullness(condition: Any, types: Mapping[str, DataType], *, is_null: bool) -> Iterator[Nullness]:  # noqa: ANN401
    name = condition.attribute[0]
    if name in types:
        yield Nullness(name, is_null)


def _ranges(condition: ds.Filter, kind: DataType) -> tuple[Range, ...] | None:
    match condition:
        case ds.EqualTo(value=value) | ds.EqualNullSafe(value=value):
            return (_between(value, value, kind),)
        case ds.In(value=values):
            known = [_between(value, value, kind) for value in values if value is not None]
            return tuple(known) if len(known) <= _MAX_POINTS else (_around(known),)
        case ds.GreaterThan(value=value):
            return (_between(value, None, kind, without=True),)
        case ds.GreaterThanOrEqual(value=value):
            return (_between(value, None, kind),)
        case ds.LessThan(value=value):
            return (_between(None, value, kind, without=True),)
        case ds.LessThanOrEqual(value=value):
            return (_between(None, value, kind),)
        case ds.StringStartsWith(value=value) if kind.root in _TEXTS:
            after = _after_prefix(value)
            return (Range(value.encode(), None if after is None else after.encode(), without_high=True),)
    return None


def _between(low: Any, high: Any, kind: DataType, *, without: bool = False) -> Range:  # noqa: ANN401
    """Return the values between two bounds, of which None is no bound.

    Statistics have timestamps as they were written. The column may have cut them to its unit, and the query cuts them
    to microseconds, each time towards an older or a newer moment. So the range is as much wider on both sides.
    """
    lowest, highest = _statistics_value(low, kind), _statistics_value(high, kind)
    if kind.root not in _TIMESTAMPS:
        return Range(
            lowest, highest, without_low=without and low is not None, without_high=without and high is not None
        )
    unit = 10 ** (_NANO_DIGITS - min(UNIT_PRECISION[time_unit(kind.precision)], _MICRO_DIGITS))
    return Range(None if lowest is None else lowest - unit, None if highest is None else highest + unit)


def _around(ranges: Sequence[Range]) -> Range:
    lows = [each.low for each in ranges if each.low is not None]
    highs = [each.high for each in ranges if each.high is not None]
    return Range(min(lows), max(highs))


def _statistics_value(value: Any, kind: DataType) -> StatisticsValue | None:  # noqa: ANN401 - of any column type
    """Return a value of a filter as statistics have it."""
    if value is None:
        return None
    of_column = micros_type(kind)
    scalar = pa.scalar(value, of_column)
    if kind.root is DataTypeRoot.STRING:
        return scalar.as_py().encode()  # type: ignore[no-any-return]
    if kind.root is DataTypeRoot.DECIMAL:
        return _unscaled(scalar.as_py())
    if kind.root in _TIMESTAMPS:
        return int(scalar.value) * _NANOS_PER_MICRO
    if kind.root is DataTypeRoot.DATE:
        return int(scalar.value)
    if kind.root in {DataTypeRoot.FLOAT, DataTypeRoot.DOUBLE}:
        return float(scalar.as_py())
    return int(scalar.as_py())


def _unscaled(value: Decimal) -> int:
    """Return the number without its decimal point, exactly, which Python's arithmetic of decimals may not be."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _after_prefix(prefix: str) -> str | None:
    """Return the least text after all texts that begin with a prefix; None if there is no such text."""
    kept = prefix.rstrip(_LAST_CHARACTER)
    if not kept:
        return None
    first, end = _SURROGATES
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(end if first <= following < end else following)
