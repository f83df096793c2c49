"""Values of every type: ordinary ones, and those at the edges. A value is plain Python and independent of Arrow.

A date is its number of days, a time and a timestamp the number of units that its precision asks for, a map a tuple of
pairs, and an array and a row a tuple. No Python type of dates is used, since these end at the years 1 and 9999.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any, Final

from fluss_tiering.model.data_type import DataType, DataTypeRoot

Value = Any

LONG_BYTES: Final = 4096
"""Parquet's writers leave out the bounds of a row group if a value is longer than this."""
HUGE_CHARACTERS: Final = 8 << 20
_DAY: Final = 86_400
_YEARS: Final = (
    -290_000,
    -1,
    0,
    1,
    1582,
    1677,
    1899,
    1900,
    1969,
    1970,
    2000,
    2024,
    2262,
    2299,
    2300,
    9999,
    10_000,
    294_000,
)
_TEXTS: Final = (
    "",
    " ",
    "a",
    "A",
    "aa",
    "Z",
    "~",
    "null",
    "NaN",
    "'",
    '"',
    "\\",
    "%_",
    "\n\t",
    "\x00",
    "a\x00b",
    "é",
    "e\u0301",
    "\ud7ff",
    "a" * 15 + "\ud7ff",
    "a" * 15 + "\ud7ffz",
    "a" * 15 + "\ud7ff" * 3,
    "\ue000",
    "\uffff" * 17,
    "\U0001f600",
    "b" * 15 + "\U0001f600" * 2,
    "\ud7ff" * 17,
    "\U0010ffff" * 17,
    "\U0010fffe",
)
_BYTES: Final = (
    b"",
    b"\x00",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 16,
    b"\xff" * 17,
    b"a" * 15 + b"\xff\xff",
    b"\x00" * 20,
)
_DOUBLES: Final = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    math.inf,
    -math.inf,
    math.nan,
    5e-324,
    -5e-324,
    1.7976931348623157e308,
    -1.7976931348623157e308,
)
_FLOATS: Final = (0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 2.0**-149, -(2.0**-149), 3.4028234663852886e38)
_INTEGER_BITS: Final = {
    DataTypeRoot.TINYINT: 8,
    DataTypeRoot.SMALLINT: 16,
    DataTypeRoot.INT: 32,
    DataTypeRoot.BIGINT: 64,
}
_NULL_SHARE: Final = 0.15
_EDGE_SHARE: Final = 0.3
_LONG_SHARE: Final = 0.12


def digits_of(data_type: DataType) -> int:
    """Return the decimal digits of the unit in which a timestamp or a time is counted: 0, 3, 6 or 9."""
    return next(digits for digits in (0, 3, 6, 9) if data_type.precision <= digits)


def value_of(data_type: DataType, chance: random.Random, *, long: bool = False) -> Value:
    """Return a value of the type, None if it may be null.

    Args:
        data_type: The type.
        chance: Where the value comes from.
        long: Whether texts and bytes may be longer than what Parquet's bounds take.
    """
    if data_type.nullable and chance.random() < _NULL_SHARE:
        return None
    match data_type.root:
        case DataTypeRoot.ARRAY:
            (element,) = data_type.fields
            return tuple(value_of(element.data_type, chance, long=long) for _ in range(chance.choice((0, 1, 1, 2, 3))))
        case DataTypeRoot.MAP:
            key, value = data_type.fields
            pairs: dict[Hashable, tuple[Value, Value]] = {}
            for _ in range(chance.choice((0, 1, 1, 2, 3))):
                chosen = value_of(key.data_type, chance)
                pairs[_identity(chosen)] = (chosen, value_of(value.data_type, chance, long=long))
            return tuple(pairs.values())
        case DataTypeRoot.ROW:
            return tuple(value_of(field.data_type, chance, long=long) for field in data_type.fields)
        case _:
            return _scalar(data_type, chance, long=long)


def cut_value(data_type: DataType, edge: str, length: int, chance: random.Random) -> Value:
    """Return a text, or its bytes, that a bound of this length cuts at a certain character or beside it.

    Args:
        data_type: A type of text or of bytes.
        edge: The character.
        length: The length of the bound.
        chance: Where the value comes from.
    """
    head = "a" * chance.choice((0, max(0, length - 2), length - 1, length - 1, length))
    text = head + edge * chance.choice((1, 2, length + 1)) + "z" * chance.choice((0, 1, 3))
    return text if data_type.root is DataTypeRoot.STRING else text.encode()


def plain_value(data_type: DataType) -> Value:
    """Return a value that a place which must not be null may always have."""
    match data_type.root:
        case DataTypeRoot.ARRAY | DataTypeRoot.MAP:
            return ()
        case DataTypeRoot.ROW:
            return tuple(plain_value(field.data_type) for field in data_type.fields)
        case DataTypeRoot.BOOLEAN:
            return False
        case DataTypeRoot.FLOAT | DataTypeRoot.DOUBLE:
            return 0.0
        case DataTypeRoot.DECIMAL:
            return Decimal(0)
        case DataTypeRoot.CHAR | DataTypeRoot.STRING:
            return ""
        case DataTypeRoot.BINARY:
            return b"\x00" * data_type.length
        case DataTypeRoot.BYTES:
            return b""
        case _:
            return 0


def _identity(value: Value) -> Hashable:
    """Return what tells keys of a map apart: readers disagree about NaN and the zeros."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return repr(value)


def _scalar(data_type: DataType, chance: random.Random, *, long: bool) -> Value:
    edge = chance.random() < _EDGE_SHARE
    root = data_type.root
    match root:
        case DataTypeRoot.BOOLEAN:
            return chance.random() < 0.5
        case DataTypeRoot.TINYINT | DataTypeRoot.SMALLINT | DataTypeRoot.INT | DataTypeRoot.BIGINT:
            most = 2 ** (_INTEGER_BITS[root] - 1)
            return chance.choice((0, 1, -1, most - 1, -most, most - 2, 1 - most)) if edge else chance.randint(-50, 50)
        case DataTypeRoot.FLOAT:
            return chance.choice(_FLOATS) if edge else _single(chance.uniform(-100, 100))
        case DataTypeRoot.DOUBLE:
            return (
                chance.choice(_DOUBLES) if edge else chance.choice((round(chance.uniform(-9, 9), 1), chance.random()))
            )
        case DataTypeRoot.DECIMAL:
            most = 10**data_type.precision - 1
            unscaled = (
                chance.choice((0, 1, -1, most, -most)) if edge else chance.randint(-min(most, 9999), min(most, 9999))
            )
            return Decimal(unscaled).scaleb(-data_type.scale, _WIDE)
        case DataTypeRoot.CHAR | DataTypeRoot.STRING:
            text = _text(chance, edge=edge, long=long)
            return text[: data_type.length] if root is DataTypeRoot.CHAR else text
        case DataTypeRoot.BINARY:
            return _bytes(chance, edge=edge, long=False)[: data_type.length].ljust(data_type.length, b"\x00")
        case DataTypeRoot.BYTES:
            return _bytes(chance, edge=edge, long=long)
        case DataTypeRoot.DATE:
            return _days_to(chance.choice(_YEARS)) + chance.choice((-1, 0, 1)) if edge else chance.randint(-800, 20_000)
        case DataTypeRoot.TIME:
            step = 10 ** (digits_of(data_type) - min(3, data_type.precision))
            last = _DAY * 10 ** digits_of(data_type) // step - 1
            return step * (chance.choice((0, last)) if edge else chance.randint(0, last))
        case _:
            return _timestamp(data_type, chance, edge=edge)


def _timestamp(data_type: DataType, chance: random.Random, *, edge: bool) -> int:
    digits = digits_of(data_type)
    unit, step = 10**digits, 10 ** (digits - data_type.precision)
    if edge:
        years = [year for year in _YEARS if digits < 9 or 1677 < year < 2262]
        count = _days_to(chance.choice(years)) * _DAY * unit + chance.choice((-1, 0, 1, -8 * 3600 * unit)) * step
    else:
        count = chance.randint(-1000, 2_000_000_000) * unit + chance.randint(0, unit - 1)
    return count // step * step


def _text(chance: random.Random, *, edge: bool, long: bool) -> str:
    if long and chance.random() < _LONG_SHARE:
        return (
            chance.choice(("", "m", "~", "\ud7ff"))
            + "x" * (LONG_BYTES + chance.choice((0, 1, 904)))
            + str(chance.randint(0, 9))
        )
    if edge:
        return chance.choice(_TEXTS)
    return f"{chance.choice(('a', 'b', 'row', 'täglich', '日本'))} {chance.randint(0, 40)}"


def _bytes(chance: random.Random, *, edge: bool, long: bool) -> bytes:
    if long and chance.random() < _LONG_SHARE:
        return chance.choice((b"", b"\xff")) + b"y" * (LONG_BYTES + chance.choice((0, 1, 904)))
    return chance.choice(_BYTES) if edge else chance.randbytes(chance.randint(1, 6))


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _days_to(year: int) -> int:
    """Return the days from 1970-01-01 to the first day of a year of the proleptic Gregorian calendar."""
    before = year - 1
    return 365 * before + before // 4 - before // 100 + before // 400 - 719_162


def _wide_context() -> Any:
    from decimal import Context  # noqa: PLC0415 - a context that no other module shares

    return Context(prec=60)


_WIDE: Final = _wide_context()


def choices(chance: random.Random, items: Sequence[Any], least: int, most: int) -> list[Any]:
    """Return between `least` and `most` different ones of the items."""
    return chance.sample(list(items), min(len(items), chance.randint(least, most)))
