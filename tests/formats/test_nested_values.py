"""Damage in nested values never leads outside of them."""

import struct

import pytest

from fluss_tiering.formats.nested_values import read_nested
from fluss_tiering.model.data_type import DataType


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("ARRAY<INT>", b""),
        ("ARRAY<INT>", struct.pack("<i", -1)),
        ("ARRAY<INT>", struct.pack("<ii", 1, 0)),
        ("ARRAY<INT>", struct.pack("<ii", 2**31 - 1, 0)),
        ("ARRAY<STRING>", struct.pack("<iiq", 1, 0, 16 << 32 | 1)),
        ("ARRAY<STRING>", struct.pack("<iiq", 1, 0, -1)),
        ("MAP<INT, INT>", struct.pack("<i", -1)),
        ("MAP<INT, INT>", struct.pack("<iiiii", 12, 1, 0, 5, 0)),
        ("ROW<a INT>", b"\x00"),
        ("ROW<a INT>", b"\x00\x80"),
        ("ROW<a INT>", b"\x00\x01\x00"),
        ("ROW<a STRING>", b"\x00\xff\xff\xff\xff\x0f"),
        ("ROW<a STRING>", b"\x00\x01\xff"),
    ],
)
def test_what_is_no_value_is_refused(text: str, data: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        read_nested(data, DataType.parse(text))


def test_small_and_large_parts_of_an_array() -> None:
    small = struct.pack("<i", 2) + b"\x02\0\0\0" + b"abc\0\0\0\0\x83" + bytes(8)
    assert read_nested(small, DataType.parse("ARRAY<STRING>")) == ["abc", None]
    large = struct.pack("<iiq", 1, 0, 16 << 32 | 8) + b"abcdefgh"
    assert read_nested(large, DataType.parse("ARRAY<BYTES>")) == [b"abcdefgh"]
