"""Lower and upper bounds of columns in Iceberg's binary form (appendix D of the table spec).

A bound need not be a value of the column, but no value may lie beyond it. A bound that cannot be made is left out:
readers then look into the file.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import pyarrow as pa

RawValue: TypeAlias = bool | int | float | bytes
"""A value as Parquet's statistics hold it: for a decimal the unscaled number, or its bytes; text in UTF-8."""

_LAST_CODE_POINT: Final = 0x10FFFF
_BEFORE_SURROGATES: Final = 0xD7FF
_AFTER_SURROGATES: Final = 0xE000


def encoded(kind: pa.DataType, value: RawValue, *, upper: bool, length: int | None) -> bytes | None:
    """Return a bound in binary form; None if there is none.

    Args:
        kind: The type of the column in the file.
        value: The smallest or the largest value.
        upper: Whether it is the upper bound.
        length: The maximum length of text in code points, and of binary values in bytes; None for any length.
    """
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text_bound(_bytes(value), length, upper=upper)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _binary_bound(_bytes(value), length, upper=upper)
    if pa.types.is_decimal(kind):
        number = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)
        return number.to_bytes(_signed_size(number), "big", signed=True)
    if pa.types.is_boolean(kind):
        return b"\x01" if value else b"\x00"
    form = _FORMS.get(kind.id)
    if form is None:
        return None
    if pa.types.is_floating(kind):
        # Readers differ in whether -0.0 is below 0.0.
        return struct.pack(form, float(value) if value else (0.0 if upper else -0.0))
    return struct.pack(form, int(value))


_FORMS: Final = {
    pa.int32().id: "<i",
    pa.date32().id: "<i",
    pa.int64().id: "<q",
    pa.time64("us").id: "<q",
    pa.timestamp("us").id: "<q",
    pa.float32().id: "<f",
    pa.float64().id: "<d",
}


def _bytes(value: RawValue) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"{value!r}: expected bytes")
    return value


def _signed_size(number: int) -> int:
    """Return the smallest number of bytes of a number in two's complement."""
    return ((number + (number < 0)).bit_length() // 8) + 1


def _text_bound(value: bytes, length: int | None, *, upper: bool) -> bytes | None:
    try:
        # A code point has four bytes at most: the rest of a long value is not decoded.
        text = value.decode() if length is None else prefix_of(value, 4 * (length + 1)).decode()
    except UnicodeDecodeError:
        return None
    if length is None or len(text) <= length:
        return value
    if not upper:
        return text[:length].encode()
    for position in range(length - 1, -1, -1):
        following = _next_code_point(ord(text[position]))
        if following is not None:
            return (text[:position] + chr(following)).encode()
    return None


def prefix_of(value: bytes, size: int) -> bytes:
    """Return at most this many bytes, and up to three less, so that no code point of UTF-8 is cut."""
    if len(value) <= size:
        return value
    end = size
    while end > size - 4 and value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]


def _next_code_point(point: int) -> int | None:
    if point == _LAST_CODE_POINT:
        return None
    # UTF-8 has no code points between these two.
    return _AFTER_SURROGATES if point == _BEFORE_SURROGATES else point + 1


def _binary_bound(value: bytes, length: int | None, *, upper: bool) -> bytes | None:
    if length is None or len(value) <= length:
        return value
    if not upper:
        return value[:length]
    kept = value[:length].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
