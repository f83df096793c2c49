"""Predicates on the columns of a table, with values that are there, next to them and absent, and the right answers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np

import judges
from fluss_tiering.model.data_type import NESTED, DataType, DataTypeRoot
from fluss_tiering.model.table import Column
from torture.values import Value

_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": lambda value, other: value == other,
    "<>": lambda value, other: value != other,
    "<": lambda value, other: value < other,
    "<=": lambda value, other: value <= other,
    ">": lambda value, other: value > other,
    ">=": lambda value, other: value >= other,
}
_TIMESTAMPS: Final = {DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ}
_EXACT: Final = Context(prec=80)
_LONGEST: Final = 20_000
_EXTREMES: Final = 2
"""The smallest and the largest value are the first candidates for a question."""
_FLOATS: Final = {DataTypeRoot.FLOAT, DataTypeRoot.DOUBLE}
_MICROS_BOUND: Final = 2**63 - 1


@dataclass(frozen=True)
class Question:
    """A predicate on a column, or on a field of a row in it.

    Attributes:
        places: The positions of the column and of the fields.
        names: Their names.
        data_type: The type of the compared values.
        operator: As `judges.Predicate` has it.
        value: The plain value.
    """

    places: tuple[int, ...]
    names: tuple[str, ...]
    data_type: DataType
    operator: str
    value: Value = None

    def holds(self, row: Sequence[Value]) -> bool:
        """Return the answer of the model for a row."""
        found: Any = row
        for place in self.places:
            if found is None:
                break
            found = found[place]
        if self.operator == "IS NULL":
            return found is None
        if found is None or self.operator == "IS NOT NULL":
            return found is not None
        return _OPERATORS[self.operator](_ordered(self.data_type, found), _ordered(self.data_type, self.value))

    def predicate(self) -> judges.Predicate:
        """Return it as the judges take it."""
        value = self.value
        if value is not None and self.data_type.root in _TIMESTAMPS:
            value = judges.Micros(value, self.data_type.root is DataTypeRoot.TIMESTAMP_LTZ)
        elif value is not None and self.data_type.root is DataTypeRoot.DATE:
            value = judges.Days(value)
        return judges.Predicate(self.names, self.operator, value)

    def __str__(self) -> str:
        return f"{self.names} {self.operator} {str(self.value)[:80]!r}"


def questions(
    columns: Sequence[Column], rows: Sequence[Sequence[Value]], chance: random.Random, most: int
) -> list[Question]:
    """Return questions about every column, of which there are at most `most`.

    Those about the extreme values are the first ones, for a judge who has little time: a wrong bound shows there.
    """
    asked: list[tuple[int, Question]] = []
    for places, names, data_type in _leaves(columns):
        values = [each for each in (_at(row, places) for row in rows) if each is not None]
        asked += [(_EXTREMES, Question(places, names, data_type, each)) for each in ("IS NULL", "IS NOT NULL")]
        if data_type.root in NESTED or data_type.root is DataTypeRoot.TIME:
            continue
        for rank, value in enumerate(_candidates(data_type, values, chance)):
            operators = chance.sample(sorted(_OPERATORS), 3)
            if rank < _EXTREMES and "=" not in operators:
                operators[0] = "="
            asked += [(rank, Question(places, names, data_type, each, value)) for each in operators]
    chosen = asked if len(asked) <= most else chance.sample(asked, most)
    return [question for _, question in sorted(chosen, key=lambda each: each[0])]


def _leaves(columns: Sequence[Column]) -> Iterator[tuple[tuple[int, ...], tuple[str, ...], DataType]]:
    for place, column in enumerate(columns):
        yield (place,), (column.name,), column.data_type
        if column.data_type.root is DataTypeRoot.ROW:
            for inner, field in enumerate(column.data_type.fields):
                yield (place, inner), (column.name, field.name), field.data_type


def _at(row: Sequence[Value], places: Sequence[int]) -> Value:
    found: Any = row
    for place in places:
        if found is None:
            return None
        found = found[place]
    return found


def _candidates(data_type: DataType, values: Sequence[Value], chance: random.Random) -> list[Value]:
    """Return values to compare with: the extreme ones, others that exist, and neighbours."""
    ordered = sorted(values, key=lambda each: _ordered(data_type, each))
    picked = [*ordered[:1], *ordered[-1:], *(chance.sample(ordered, min(3, len(ordered))))]
    near = [other for value in picked[:3] for other in _neighbours(data_type, value)]
    return [each for each in dict.fromkeys([*picked, *near]) if not _is_too_long(each)]


def _is_too_long(value: Value) -> bool:
    return isinstance(value, str | bytes) and len(value) > _LONGEST


def _neighbours(data_type: DataType, value: Value) -> list[Value]:
    match data_type.root:
        case DataTypeRoot.BOOLEAN:
            return [not value]
        case DataTypeRoot.CHAR | DataTypeRoot.STRING:
            return [value + " ", value[:-1], value[:16], value[:15] + "\U0010ffff"]
        case DataTypeRoot.BYTES | DataTypeRoot.BINARY:
            return [value + b"\x00", value[:-1], value[:15] + b"\xff\xff"]
        case DataTypeRoot.FLOAT | DataTypeRoot.DOUBLE:
            if not math.isfinite(value):
                return []
            # pyiceberg rounds what it compares a FLOAT with.
            is_single = data_type.root is DataTypeRoot.FLOAT
            # After the greatest number comes the infinity.
            with np.errstate(over="ignore"):
                following = (
                    np.nextafter(np.float32(value), np.float32("inf")) if is_single else math.nextafter(value, math.inf)
                )
            return [float(following), -value]
        case DataTypeRoot.DECIMAL:
            next_one = _EXACT.add(value, Decimal(1).scaleb(-data_type.scale))
            return [next_one] if abs(next_one.scaleb(data_type.scale, _EXACT)) < 10**data_type.precision else []
        case root if root in _TIMESTAMPS:
            return [value + 1, value - 1] if abs(value) < _MICROS_BOUND // 2 else []
        case DataTypeRoot.DATE:
            return [value + 1, value - 1]
        case _:
            return [other for other in (value - 1, value + 1) if abs(other) < 2**31 - 1]


def _ordered(data_type: DataType, value: Value) -> Any:
    """Return a key for Spark's and DuckDB's order: NaN is the greatest number, and the zeros are equal."""
    if data_type.root in _FLOATS:
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value
