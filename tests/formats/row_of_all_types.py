"""Rows with a value of every type, and their stored bytes, which were computed by hand from Fluss's layout."""

import datetime as dt
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType


def table_columns(*types: str) -> tuple[Column, ...]:
    return tuple(Column(f"c{index}", DataType.parse(text)) for index, text in enumerate(types))


VECTOR_COLUMNS = table_columns(
    "INT NOT NULL",
    "INT",
    "BIGINT",
    "BOOLEAN",
    "DOUBLE",
    "STRING",
    "DATE",
    "TIMESTAMP(0)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP_LTZ(9)",
    "DECIMAL(5, 2)",
    "DECIMAL(20, 0)",
    "DECIMAL(38, 1)",
    "STRING",
)
VECTOR_ROW = [300, -1, -1, True, 1.5, "hé", 1, -1, 1, 1_002, -1, Decimal("-1.23"), Decimal(128), Decimal("-12.9"), None]
VECTOR = bytes.fromhex(
    "01 00"  # schema id 1, little-endian
    "00 40"  # null bits of 15 columns: only column 14, which is bit 6 of the second byte
    "AC 02"  # 300 = 0b10_0101100: 7 bits at a time, lowest first, the high bit says that more follow
    "FF FF FF FF 0F"  # -1 is 32 one bits: four groups of 7 and one of 4
    "FF FF FF FF FF FF FF FF FF 01"  # -1 is 64 one bits: nine groups of 7 and one of 1
    "01"  # true
    "00 00 00 00 00 00 F8 3F"  # 1.5 = 0x3FF8000000000000, little-endian
    "03 68 C3 A9"  # 3 bytes of UTF-8
    "01"  # one day after the epoch
    "98 F8 FF FF FF FF FF FF FF 01"  # one second before the epoch = -1000 ms = ...1111000_0011000 in binary
    "01"  # 1 ms and no nanoseconds
    "01 D0 0F"  # 1002 us = 1 ms and 2000 ns = 0b1111_1010000
    "FF FF FF FF FF FF FF FF FF 01 BF 84 3D"  # -1 ns = -1 ms and 999999 ns = 0b111101_0000100_0111111
    "85 FF FF FF FF FF FF FF FF 01"  # unscaled -123 = ...1111111_0000101 in binary
    "02 00 80"  # 128 in 2 bytes, since 0x80 alone would be -128
    "02 FF 7F"  # -129 = 0xFF7F
)


FURTHER_COLUMNS = table_columns(
    "TINYINT NOT NULL",
    "SMALLINT",
    "FLOAT",
    "CHAR(5)",
    "BINARY(3)",
    "BYTES",
    "TIME(0)",
    "TIME(3)",
    "TIME(6)",
    "TIME(9)",
    "BYTES",
)
_LAST_MILLISECOND = dt.time(23, 59, 59, 999_000)
FURTHER_ROW = [
    -2,
    -300,
    -1.5,
    "hé",
    b"\x00\x01\xff",
    b"\x80\x7f",
    dt.time(23, 59, 59),
    *[_LAST_MILLISECOND] * 3,
    None,
]
FURTHER = bytes.fromhex(
    "01 00"  # schema id 1, little-endian
    "00 04"  # null bits of 11 columns: only column 10, which is bit 2 of the second byte
    "FE"  # -2 in one byte
    "D4 FE"  # -300 in two, little-endian
    "00 00 C0 BF"  # -1.5 = 0xBFC00000, little-endian
    "03 68 C3 A9"  # 3 bytes of UTF-8, however many characters the CHAR has
    "03 00 01 FF"  # bytes after their length, although the length of a BINARY is fixed
    "02 80 7F"
    "98 B0 99 29"  # 86,399,000 ms = 0b101001_0011001_0110000_0011000
    "FF B7 99 29"  # 86,399,999 ms = 0b101001_0011001_0110111_1111111, whatever the precision
    "FF B7 99 29"
    "FF B7 99 29"
)


NESTED_COLUMNS = table_columns(
    "INT NOT NULL",
    "ARRAY<INT>",
    "ARRAY<ARRAY<STRING NOT NULL>>",
    "MAP<STRING, ARRAY<BYTES>>",
    "ROW<a INT NOT NULL, b ROW<x TINYINT, y DOUBLE, t TIME(3), z TIMESTAMP_LTZ(9)>, m MAP<SMALLINT, BOOLEAN>>",
    "ARRAY<DECIMAL(5, 2)>",
    "ARRAY<DECIMAL(38, 1)>",
    "ARRAY<TIMESTAMP(6)>",
    "ARRAY<INT>",
)
NESTED_ROW = [
    7,
    [1, None, -1],
    [["a", "bé and more"]],
    [("short", [b"\x01", None]), ("longer than seven", None)],
    {"a": 300, "b": {"x": -2, "y": None, "t": 86_399_999, "z": -1}, "m": [(-300, True)]},
    [Decimal("-1.23"), Decimal("9.99")],
    [Decimal("-12345678901234567890.1"), None],
    [-1_000_000, 1_002],
    None,
]


ELEMENT_COLUMNS = table_columns(
    "INT NOT NULL",
    "ARRAY<ROW<a TINYINT>>",
    "ARRAY<FLOAT>",
    "ARRAY<DOUBLE>",
    "ROW<f FLOAT, d DOUBLE>",
    "ARRAY<BOOLEAN>",
    "ARRAY<STRING>",
    "ARRAY<BINARY(3)>",
    "ARRAY<TIME(9)>",
    "ARRAY<SMALLINT>",
    "ARRAY<TIMESTAMP(3)>",
    "ARRAY<TIMESTAMP_LTZ(9)>",
    "MAP<INT, MAP<DATE, BIGINT>>",
    "ARRAY<INT>",
)
# It has a sign and a payload. Java's own NaN has neither.
_OTHER_FLOAT_NAN = struct.unpack(">f", bytes.fromhex("FFC00001"))[0]
_OTHER_DOUBLE_NAN = struct.unpack(">d", bytes.fromhex("FFF8000000000001"))[0]
ELEMENT_ROW = [
    1,
    [{"a": 1}, None, {"a": None}],
    [_OTHER_FLOAT_NAN, -0.0, None],
    [_OTHER_DOUBLE_NAN, None, -0.0],
    {"f": _OTHER_FLOAT_NAN, "d": _OTHER_DOUBLE_NAN},
    [None if index == 32 else index % 3 == 0 for index in range(34)],
    ["", None, "seven b", "eight by"],
    [b"\x00\x01\xff", None],
    [_LAST_MILLISECOND, None],
    [-300, None, 1],
    [None, -1],
    [None, -1],
    [(-1, [])],
    [],
]


def vector_batch() -> pa.RecordBatch:
    return _batch(VECTOR_COLUMNS, VECTOR_ROW)


def further_batch() -> pa.RecordBatch:
    return _batch(FURTHER_COLUMNS, FURTHER_ROW)


def nested_batch() -> pa.RecordBatch:
    return _batch(NESTED_COLUMNS, NESTED_ROW)


def element_batch() -> pa.RecordBatch:
    return _batch(ELEMENT_COLUMNS, ELEMENT_ROW)


def _batch(columns: Sequence[Column], row: Sequence[Any]) -> pa.RecordBatch:
    schema = arrow_schema(columns)
    arrays = [pa.array([item], field.type) for item, field in zip(row, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
