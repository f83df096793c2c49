"""Conditions in the form in which FETCH_LOG takes them (Fluss's `PredicateMessageUtils`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fluss_tiering.api.fluss.v1.log_pb2 import PbCompoundPredicate, PbLeafPredicate, PbLiteralValue, PbPredicate
from fluss_tiering.formats.log.conditions import Condition, Nullness, Range
from fluss_tiering.formats.log.statistics import StatisticsValue
from fluss_tiering.model.table import Column, DataType, DataTypeRoot

_LEAF: Final = 0
_COMPOUND: Final = 1
_AND: Final = 0
_OR: Final = 1
_EQUAL: Final = 0
_LESS: Final = 2
_LESS_OR_EQUAL: Final = 3
_GREATER: Final = 4
_GREATER_OR_EQUAL: Final = 5
_IS_NULL: Final = 6
_IS_NOT_NULL: Final = 7
_IN: Final = 11
_COMPACT_DECIMAL: Final = 18
_NANOS_PER_MILLI: Final = 1_000_000
_TYPES: Final = {
    DataTypeRoot.BOOLEAN: 0,
    DataTypeRoot.TINYINT: 1,
    DataTypeRoot.SMALLINT: 2,
    DataTypeRoot.INT: 3,
    DataTypeRoot.BIGINT: 4,
    DataTypeRoot.STRING: 8,
    DataTypeRoot.DECIMAL: 9,
    DataTypeRoot.DATE: 10,
    DataTypeRoot.TIMESTAMP: 12,
    DataTypeRoot.TIMESTAMP_LTZ: 13,
}
"""The numbers of the types whose values are sent.

FLOAT and DOUBLE are missing: servers take NaN for the greatest value, and writers in other languages than Java may take
a NaN with a sign for the least one, so that a server would leave out batches with matching rows.
"""


@dataclass(frozen=True, slots=True)
class LogFilter:
    """What FETCH_LOG is asked to filter batches by.

    Attributes:
        predicate: The predicate, on field ids.
        schema_id: The id of the schema that has these fields.
    """

    predicate: PbPredicate
    schema_id: int


def log_filter(
    conditions: Sequence[Condition], columns: Sequence[Column], field_ids: Mapping[str, int], schema_id: int
) -> LogFilter | None:
    """Return the filter for all conditions together, or None if servers can evaluate none of them.

    Args:
        conditions: The conditions, each on one of the columns.
        columns: The columns of the schema.
        field_ids: The id of each column that the filter may name.
        schema_id: The id of the schema.
    """
    types = {column.name: column.data_type for column in columns}
    parts = [
        _predicate(each, field_ids[each.column], types[each.column])
        for each in conditions
        if each.column in field_ids and (isinstance(each, Nullness) or types[each.column].root in _TYPES)
    ]
    return LogFilter(_all_of(parts), schema_id) if parts else None


def _predicate(condition: Condition, field_id: int, data_type: DataType) -> PbPredicate:
    if isinstance(condition, Nullness):
        return _leaf(_IS_NULL if condition.is_null else _IS_NOT_NULL, field_id)

    def compared(function: int, *values: StatisticsValue) -> PbPredicate:
        return _leaf(function, field_id, *(_literal(value, data_type) for value in values))

    points = [each.low for each in condition.ranges if each.low is not None and each.low == each.high]
    if len(points) == len(condition.ranges):
        return compared(_EQUAL, *points) if len(points) == 1 else compared(_IN, *points)
    return _compound(_OR, [_within(each, compared, field_id) for each in condition.ranges])


def _within(wanted: Range, compared: Callable[..., PbPredicate], field_id: int) -> PbPredicate:
    parts = []
    if wanted.low is not None:
        parts.append(compared(_GREATER if wanted.without_low else _GREATER_OR_EQUAL, wanted.low))
    if wanted.high is not None:
        parts.append(compared(_LESS if wanted.without_high else _LESS_OR_EQUAL, wanted.high))
    return _all_of(parts or [_leaf(_IS_NOT_NULL, field_id)])


def _all_of(parts: Sequence[PbPredicate]) -> PbPredicate:
    return _compound(_AND, parts)


def _compound(function: int, parts: Sequence[PbPredicate]) -> PbPredicate:
    if len(parts) == 1:
        return parts[0]
    return PbPredicate(type=_COMPOUND, compound=PbCompoundPredicate(function=function, children=parts))


def _leaf(function: int, field_id: int, *literals: PbLiteralValue) -> PbPredicate:
    return PbPredicate(type=_LEAF, leaf=PbLeafPredicate(function=function, field_id=field_id, literals=literals))


def _literal(value: StatisticsValue, data_type: DataType) -> PbLiteralValue:
    literal = PbLiteralValue(literal_type=_TYPES[data_type.root], is_null=False)
    if isinstance(value, bytes):
        literal.string_value = value.decode()
        return literal
    number = int(value)
    match data_type.root:
        case DataTypeRoot.BOOLEAN:
            literal.boolean_value = bool(number)
        case DataTypeRoot.BIGINT | DataTypeRoot.DATE:
            literal.bigint_value = number
        case DataTypeRoot.DECIMAL if data_type.precision <= _COMPACT_DECIMAL:
            literal.decimal_value = number
        case DataTypeRoot.DECIMAL:
            literal.decimal_bytes = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ:
            millis, nanos = divmod(number, _NANOS_PER_MILLI)
            literal.timestamp_millis_value, literal.timestamp_nano_of_millis_value = millis, nanos
        case _:
            literal.int_value = number
    return literal
