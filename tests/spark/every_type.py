"""Values of every type for columns of tests, two for each, and what Spark reads as these values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from pyspark.sql import Row

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123_456)  # noqa: DTZ001 - a TIMESTAMP has no zone
VALUES: dict[str, tuple[Any, Any]] = {
    "BOOLEAN": (True, False),
    "TINYINT": (-128, 127),
    "SMALLINT": (-32_768, 32_767),
    "INT": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "FLOAT": (-1.5, 2.0**-149),
    "DOUBLE": (0.1, float("inf")),
    "DECIMAL(5, 2)": (Decimal("-1.23"), Decimal("999.99")),
    "DECIMAL(38, 10)": (Decimal("-1.0000000001"), Decimal("9999999999999999999999999999.9999999999")),
    "CHAR(3)": ("äö", ""),
    "STRING": ("", "x" * 300),
    "BINARY(3)": (b"\x00\x01\xff", b"abc"),
    "BYTES": (b"", b"\xff" * 300),
    "DATE": (dt.date(1969, 12, 31), dt.date(2024, 2, 29)),
    "TIMESTAMP(0)": (NOON.replace(microsecond=0), dt.datetime(1969, 12, 31, 23, 59, 59)),  # noqa: DTZ001
    "TIMESTAMP(3)": (NOON.replace(microsecond=123_000), dt.datetime(1969, 12, 31, 23, 59, 59)),  # noqa: DTZ001
    "TIMESTAMP(6)": (NOON, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
    "TIMESTAMP(9)": (NOON, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
    "TIMESTAMP_LTZ(3)": (NOON.replace(microsecond=123_000), dt.datetime(1970, 1, 1)),  # noqa: DTZ001
    "TIMESTAMP_LTZ(6)": (NOON, dt.datetime(1970, 1, 1)),  # noqa: DTZ001
}
TIMES: dict[str, tuple[Any, Any]] = {
    "TIME(0)": (dt.time(23, 59, 59), dt.time(0)),
    "TIME(3)": (dt.time(23, 59, 59, 999_000), dt.time(0, 0, 0, 1_000)),
    "TIME(6)": (dt.time(23, 59, 59, 999_000), dt.time(0, 0, 0, 1_000)),
    "TIME(9)": (dt.time(23, 59, 59, 999_000), dt.time(0, 0, 0, 1_000)),
}
NESTED: dict[str, tuple[Any, Any]] = {
    "ARRAY<INT>": ([1, None, -1], []),
    "ARRAY<ARRAY<STRING NOT NULL> NOT NULL>": ([["a", ""], []], []),
    "MAP<STRING, BIGINT>": ([("a", 1), ("b", None)], []),
    "MAP<INT, ROW<x TINYINT, y TIMESTAMP_LTZ(3)>>": ([(1, {"x": -128, "y": NOON.replace(microsecond=0)})], [(2, None)]),
    "ROW<a INT NOT NULL, b ARRAY<BYTES>, c MAP<STRING, DECIMAL(20, 3)>>": (
        {"a": 1, "b": [b"\xff", None], "c": [("k", Decimal("1.234"))]},
        {"a": 2, "b": None, "c": None},
    ),
}


def in_utc(value: Any) -> Any:
    """Return a value without a time zone, and bytes as bytes."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def plain(value: Any) -> Any:
    """Return what Spark reads as the value in Arrow."""
    if isinstance(value, Row):
        return {name: plain(item) for name, item in value.asDict().items()}
    if isinstance(value, dict):
        return [(plain(key), plain(item)) for key, item in value.items()]
    return [plain(item) for item in value] if isinstance(value, list) else in_utc(value)
