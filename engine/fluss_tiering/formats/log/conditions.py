"""Conditions that rows shall meet, and whether the statistics of a log batch say that none of its rows does.

The values are those of statistics (`StatisticsValue`). A condition may be wider than what a query asks for: batches
that cannot match are left out, and everything else is left to whoever asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fluss_tiering.formats.log.batch import LogBatchHeader
from fluss_tiering.formats.log.statistics import ColumnStatistics, StatisticsValue, read_statistics
from fluss_tiering.model.table import Column, DataType


@dataclass(frozen=True, slots=True)
class Range:
    """The values between two bounds.

    Attributes:
        low: The lower bound; None if there is none.
        high: The upper bound; None if there is none.
        without_low: Whether the lower bound itself does not belong to the range.
        without_high: Whether the upper bound itself does not belong to the range.
    """

    low: StatisticsValue | None = None
    high: StatisticsValue | None = None
    without_low: bool = False
    without_high: bool = False


@dataclass(frozen=True, slots=True)
class InRanges:
    """A column is not null, and its value is in one of these ranges. NaN is above all other numbers."""

    column: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Nullness:
    """A column is null, or it is not."""

    column: str
    is_null: bool


Condition = InRanges | Nullness


class BatchFilter:
    """Tells which batches of a table's log may have rows that meet all of some conditions.

    Args:
        columns: The table's columns. Older schemas begin with the same columns, or have fewer.
        conditions: The conditions, each on one of these columns.
    """

    def __init__(self, columns: Sequence[Column], conditions: Sequence[Condition]) -> None:
        indexes = {column.name: index for index, column in enumerate(columns)}
        self._conditions = [(indexes[condition.column], condition) for condition in conditions]
        self._types: Mapping[int, DataType] = {index: columns[index].data_type for index, _ in self._conditions}

    def may_match(self, buffer: memoryview, position: int, header: LogBatchHeader) -> bool:
        """Return whether the batch at a position may have such a row; True if its statistics do not tell."""
        if header.statistics_size == 0:
            return True
        known = read_statistics(buffer, position, header, self._types)
        return all(
            index not in known or _may_meet(condition, known[index], header.record_count)
            for index, condition in self._conditions
        )


def _may_meet(condition: Condition, known: ColumnStatistics, rows: int) -> bool:
    if isinstance(condition, Nullness):
        return known.null_count > 0 if condition.is_null else known.null_count < rows
    return known.null_count < rows and any(_overlaps(each, known) for each in condition.ranges)


def _overlaps(wanted: Range, known: ColumnStatistics) -> bool:
    least, greatest = known.least, known.greatest
    # Some writers take a NaN with a sign for less than all numbers; the other bound then says nothing of it.
    if least is None or greatest is None or _is_nan(least):
        return True
    return _reaches(greatest, wanted) and _begins(least, wanted)


def _reaches(greatest: StatisticsValue, wanted: Range) -> bool:
    if wanted.low is None or _is_nan(greatest):
        return True
    return greatest > wanted.low or (greatest == wanted.low and not wanted.without_low)  # type: ignore[operator]


def _begins(least: StatisticsValue, wanted: Range) -> bool:
    if wanted.high is None:
        return True
    return least < wanted.high or (least == wanted.high and not wanted.without_high)  # type: ignore[operator]


def _is_nan(value: StatisticsValue) -> bool:
    return isinstance(value, float) and math.isnan(value)
