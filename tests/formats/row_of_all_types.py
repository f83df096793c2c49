"""Rows with a value of every type, and their stored bytes, which Fluss 0.9.1's own classes made."""

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
    "01000040AC02FFFFFFFF0FFFFFFFFFFFFFFFFFFF0101000000000000F83F0368C3A90198F8FFFFFFFFFFFFFF010101D00F"
    "FFFFFFFFFFFFFFFFFF01BF843D85FFFFFFFFFFFFFFFF0102008002FF7F"
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
FURTHER = bytes.fromhex("01000004FED4FE0000C0BF0368C3A9030001FF02807F98B09929FFB79929FFB79929FFB79929")


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
