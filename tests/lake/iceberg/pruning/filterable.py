"""A column of each type with values at the edges of the type, and a plain Python model of predicates on them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from judges import Predicate

EPOCH = dt.datetime.fromisoformat("1970-01-01")
_EXACT = Context(prec=80)
INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Filterable:
    """A column, or a field of a ROW.

    Attributes:
        kind: The Fluss type of the column.
        values: Its values as they are written, in order.
        plain: Makes of a written value what Iceberg has, as a Python value.
        path: The names of the fields inside of the column.
        has_bloom_filter: Whether a bloom filter is wanted.
    """

    kind: str
    values: Sequence[Any]
    plain: Callable[[Any], Any] = lambda value: value
    path: tuple[str, ...] = ()
    has_bloom_filter: bool = True

    def written(self, value: Any) -> Any:
        """Return the value of the column that has this value in its field."""
        for name in reversed(self.path):
            value = {name: value}
        return value


def _moments(precision: int, *, zoned: bool) -> Filterable:
    """Return timestamps before and after 1970, in the unit that the precision has in Arrow."""
    units = 10 ** (3 * math.ceil(precision / 3))
    seconds = [-2_000_000_000, -1, 0, 1, 1_700_000_000, 4_000_000_000]
    counts = sorted({each for second in seconds for each in (second * units, second * units + (precision > 0))})

    def plain(count: int) -> dt.datetime:
        moment = EPOCH + dt.timedelta(microseconds=count * 10**6 // units)
        return moment.replace(tzinfo=dt.UTC) if zoned else moment

    return Filterable(f"TIMESTAMP{'_LTZ' if zoned else ''}({precision})", counts, plain)


def _times(precision: int) -> Filterable:
    units = 10 ** (3 * math.ceil(precision / 3))
    # Fluss itself has milliseconds.
    counts = [0, max(1, units // 1000), 43_200 * units, 86_400 * units - max(1, units // 1000)]

    def plain(count: int) -> dt.time:
        return (EPOCH + dt.timedelta(microseconds=count * 10**6 // units)).time()

    return Filterable(f"TIME({precision})", counts, plain)


def _decimals(precision: int, scale: int) -> Filterable:
    counts = [-(10**precision) + 1, -100, -1, 0, 1, 255, 256, 10**precision - 1]
    return Filterable(f"DECIMAL({precision}, {scale})", [Decimal(count).scaleb(-scale, _EXACT) for count in counts])


_TEXTS = sorted(
    ["", "a", "a ", "a" * 16 + "b", "a" * 17, "z" * 16 + "\U0010ffff", "é", "\ud7ff", "\ue000", "\U00010000x"],
    key=str.encode,
)
_BYTES = [b"", b"\x00", b"\x00\x01", b"a" * 17, b"\x7f", b"\x80", b"\xff" * 17, b"\xff" * 18]
_FLOATS = [-INF, -1.5, -0.0, 0.0, 2.0**-140, 1.5, 2.0**100, INF, NAN]

COLUMNS: Mapping[str, Filterable] = {
    "bool": Filterable("BOOLEAN", [False, True], has_bloom_filter=False),
    "tiny": Filterable("TINYINT", [-128, -1, 0, 1, 127]),
    "small": Filterable("SMALLINT", [-(2**15), -1, 0, 1, 2**15 - 1]),
    "int": Filterable("INT", [-(2**31), -1, 0, 1, 2**31 - 1]),
    "big": Filterable("BIGINT", [-(2**63) + 1, -(2**31) - 1, 0, 2**31, 2**63 - 1]),
    "float": Filterable("FLOAT", _FLOATS, has_bloom_filter=False),
    "double": Filterable("DOUBLE", _FLOATS, has_bloom_filter=False),
    "dec9": _decimals(9, 2),
    "dec18": _decimals(18, 3),
    "dec19": _decimals(19, 0),
    "dec38": _decimals(38, 10),
    "char": Filterable("CHAR(5)", ["", "a", "abcde", "é", "\U0001f600"]),
    "text": Filterable("STRING", _TEXTS),
    "binary": Filterable(
        "BINARY(2)", [b"\x00\x00", b"\x00\xff", b"\x7f\x80", b"\x80\x00", b"\xff\xff"], has_bloom_filter=False
    ),
    "bytes": Filterable("BYTES", _BYTES, has_bloom_filter=False),
    "date": Filterable("DATE", [-25_567, -1, 0, 1, 20_000, 120_000], lambda days: EPOCH.date() + dt.timedelta(days)),
    **{f"ts{precision}": _moments(precision, zoned=False) for precision in range(10)},
    **{f"ltz{precision}": _moments(precision, zoned=True) for precision in range(10)},
    "row": Filterable("ROW<x BIGINT>", [-(2**40), -1, 0, 2**40], path=("x",)),
    "deep": Filterable("ROW<r ROW<s STRING>>", _TEXTS, path=("r", "s")),
}
TIMES: Mapping[str, Filterable] = {f"time{precision}": _times(precision) for precision in range(10)}


def spread(column: Filterable, count: int) -> list[Any]:
    """Return written values in order, so that each file and row group has few of them; two are null."""
    chosen = [column.values[number * len(column.values) // count] for number in range(count)]
    return [None if number in (3, count - 4) else value for number, value in enumerate(chosen)]


@dataclass(frozen=True)
class Asked:
    """Predicates on one column, all of which have to hold.

    Attributes:
        column: The name of the column.
        comparisons: Operators with plain values.
    """

    column: str
    comparisons: tuple[tuple[str, Any], ...]

    def predicates(self, path: tuple[str, ...]) -> list[Predicate]:
        return [Predicate((self.column, *path), operator, value) for operator, value in self.comparisons]

    def holds(self, value: Any, *, nan_is_largest: bool) -> bool:
        if value is None:
            return False
        return all(_holds(operator, value, other, nan_is_largest) for operator, other in self.comparisons)


def _holds(operator: str, value: Any, other: Any, nan_is_largest: bool) -> bool:
    left, right = (_rank(each) if nan_is_largest else each for each in (value, other))
    if isinstance(value, str):
        left, right = value.encode(), other.encode()
    return bool({"=": left == right, ">=": left >= right, "<": left < right, ">": left > right}[operator])


def _rank(value: Any) -> Any:
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def asked_about(name: str, column: Filterable) -> list[Asked]:
    """Return questions for the extreme values and one between them, and for ranges."""
    values = [column.plain(value) for value in column.values]
    middle = values[len(values) // 2]
    points = [Asked(name, (("=", value),)) for value in (values[0], middle, values[-1])]
    ranges = [Asked(name, ((">=", values[1]), ("<", values[-1]))), Asked(name, ((">", middle),))]
    return [*points, *ranges]
