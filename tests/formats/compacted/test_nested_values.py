"""Damaged nested values never make the decoder read bytes outside of them."""

import struct

import pyarrow as pa
import pytest

from cases import cases
from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType


def stored(data: bytes) -> bytes:
    """Return a row with one column: schema id, null bits, length, and this value of less than 128 bytes."""
    return bytes([1, 0, 0, len(data)]) + data


def read(rows: list[bytes], text: str) -> list[object]:
    return decode_values(pa.array(rows, pa.binary()), [Column("c", DataType.parse(text))], 1).column(0).to_pylist()


@cases(
    ("text", "data"),
    [
        ("ARRAY<INT>", b""),
        ("ARRAY<INT>", struct.pack("<i", -1)),
        ("ARRAY<INT>", struct.pack("<ii", 1, 0)),
        ("ARRAY<INT>", struct.pack("<ii", 2**31 - 1, 0)),
        ("ARRAY<STRING>", struct.pack("<iiq", 1, 0, 16 << 32 | 1)),
        ("ARRAY<STRING>", struct.pack("<iiq", 1, 0, -1)),
        # The slot claims more bytes than it has.
        ("ARRAY<BYTES>", struct.pack("<ii", 2, 0) + b"abcdefg\x89" + b"abcdefg\x87"),
        # The parts overlap, and together they are longer than the data.
        ("ARRAY<STRING>", struct.pack("<iiqqq", 3, 0, *[32 << 32 | 40] * 3) + b"x" * 40),
        ("ARRAY<ARRAY<INT>>", struct.pack("<iiq", 1, 0, 16 << 32 | 8) + struct.pack("<ii", 1, 0)),
        ("ARRAY<DECIMAL(20, 0)>", struct.pack("<iiq", 1, 0, 16 << 32 | 17) + bytes(24)),
        ("ARRAY<TIMESTAMP(6)>", struct.pack("<iiq", 1, 0, -1 << 32)),
        ("ARRAY<TIMESTAMP(6)>", struct.pack("<iiqi", 1, 0, 16 << 32, 0)),
        ("ARRAY<TIMESTAMP(6)>", struct.pack("<iiqq", 1, 0, 16 << 32 | 1_000_000, 0)),
        ("ARRAY<TIME(3)>", struct.pack("<iii", 1, 0, 86_400_000)),
        ("MAP<INT, INT>", struct.pack("<iiiiiii", 12, 1, 1, 0, 1, 0, 0)),
        ("MAP<INT, INT>", struct.pack("<iiii", 12, 1, 0, 5)),
        ("MAP<INT, INT>", struct.pack("<i", -1)),
        ("MAP<INT, INT>", struct.pack("<iiiii", 12, 1, 0, 5, 0)),
        ("ROW<a INT>", b"\x00"),
        ("ROW<a INT>", b"\x00\x80"),
        ("ROW<a INT>", b"\x00\x01\x00"),
        ("ROW<a STRING>", b"\x00\xff\xff\xff\xff\x0f"),
        ("ROW<a STRING>", b"\x00\x01\xff"),
        ("ROW<a ROW<b INT>>", b"\x00\x03\x00\x01\x00"),
    ],
)
def test_what_is_no_value_is_refused(text: str, data: bytes) -> None:
    empty = bytes([1, 0, 1])
    with pytest.raises(FlussTieringError, match="'c") as caught:
        read([empty, stored(data), empty], text)
    assert caught.value.code is ErrorCode.CORRUPT_DATA
    if "UTF8" not in caught.value.message:
        assert "the stored value 1 of 3" in caught.value.message


def test_small_and_large_parts_of_an_array() -> None:
    small = struct.pack("<i", 2) + b"\x02\0\0\0" + b"abc\0\0\0\0\x83" + bytes(8)
    assert read([stored(small)], "ARRAY<STRING>") == [["abc", None]]
    large = struct.pack("<iiq", 1, 0, 16 << 32 | 8) + b"abcdefgh"
    assert read([stored(large), stored(large)], "ARRAY<BYTES>") == [[b"abcdefgh"], [b"abcdefgh"]]
