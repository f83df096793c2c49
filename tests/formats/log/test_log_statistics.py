"""Log batches with statistics that Fluss 1.0.0's own classes made (`data/FlussStatisticsVectors.java`)."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_of_all_types import table_columns

from fluss_tiering.formats.log.batch import LogBatchHeader, check_crc, read_header
from fluss_tiering.formats.log.conditions import BatchFilter, Condition, InRanges, Nullness, Range
from fluss_tiering.formats.log.decoding import decode_log_batch
from fluss_tiering.formats.log.statistics import ColumnStatistics, read_statistics
from fluss_tiering.formats.schema import arrow_schema

COLUMNS = table_columns(
    "INT NOT NULL",
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(0)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP_LTZ(9)",
    "DECIMAL(5, 2)",
    "DECIMAL(20, 0)",
    "DECIMAL(38, 1)",
    "INT",
    "BYTES",
)
TYPES = {index: column.data_type for index, column in enumerate(COLUMNS)}
MILLI = 1_000_000
BOUNDS: dict[int, tuple[int, object, object]] = {
    0: (0, 1, 300),
    1: (1, 0, 1),
    2: (1, -128, 127),
    3: (1, -300, 300),
    4: (1, -(2**63), 2**63 - 1),
    5: (1, -0.0, 0.0),
    7: (1, "hé and more than seven bytes".encode(), b"short"),
    8: (1, -1, 20_000),
    9: (1, 0, 86_399_999),
    # The records have whole seconds in this column: -1 and 1.
    10: (1, -1500 * MILLI, 1500 * MILLI),
    11: (1, -MILLI, MILLI),
    12: (1, -MILLI + 2000, 1_700_000_000_000 * MILLI + 999_000),
    13: (1, -1, MILLI + 1),
    14: (1, -123, 999),
    15: (1, -12345678901234567890, 128),
    16: (1, -129, 12345678901234567890123456789012345678),
    17: (3, None, None),
}


def vector(name: str) -> tuple[memoryview, LogBatchHeader]:
    data = Path(__file__).parents[1].joinpath("data", f"fluss-1.0.0-{name}.bin").read_bytes()
    header = read_header(memoryview(data), 0)
    assert header is not None
    return memoryview(data), header


@pytest.mark.parametrize(
    ("name", "magic"), [("magic-0", 0), ("magic-1", 1), ("magic-2", 2), ("magic-1-without-statistics", 1)]
)
def test_batches_of_fluss_are_read(name: str, magic: int) -> None:
    data, header = vector(name)
    assert (header.magic, header.size, header.base_offset, header.next_offset) == (magic, len(data), 40, 43)
    assert (header.commit_timestamp, header.schema_id, header.append_only) == (1_234_567, 1, False)
    check_crc(data, 0, header)
    batch = decode_log_batch(data, 0, arrow_schema(COLUMNS))
    assert batch.change_types is not None
    assert batch.change_types.tolist() == [1, 1, 1]
    rows = batch.records.to_pylist()
    assert [row["c0"] for row in rows] == [1, 300, 2]
    assert [row["c7"] for row in rows] == ["hé and more than seven bytes", "short", None]
    of_magic_0 = decode_log_batch(vector("magic-0")[0], 0, arrow_schema(COLUMNS)).records
    # NaN does not equal itself.
    assert repr(batch.records.to_pylist()) == repr(of_magic_0.to_pylist())


@pytest.mark.parametrize("name", ["magic-1", "magic-2"])
def test_statistics_of_fluss_are_read(name: str) -> None:
    data, header = vector(name)
    read = read_statistics(data, 0, header, TYPES)
    with_nan = read.pop(6)
    assert (with_nan.null_count, with_nan.least) == (1, -1.5)
    assert isinstance(with_nan.greatest, float)
    assert math.isnan(with_nan.greatest)
    assert read == {index: ColumnStatistics(*bounds) for index, bounds in BOUNDS.items()}
    assert read_statistics(data, 0, header, {4: TYPES[4]}) == {4: ColumnStatistics(*BOUNDS[4])}
    assert read_statistics(data, 0, header, {18: TYPES[18]}) == {}


@pytest.mark.parametrize("name", ["magic-0", "magic-1-without-statistics"])
def test_there_may_be_no_statistics(name: str) -> None:
    data, header = vector(name)
    assert read_statistics(data, 0, header, TYPES) == {}
    assert BatchFilter(COLUMNS, [InRanges("c0", (Range(low=1000),))]).may_match(data, 0, header)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_damaged_statistics_are_none_or_some(data: st.DataObject) -> None:
    stored, header = vector("magic-1")
    damaged = bytearray(stored)
    for _ in range(data.draw(st.integers(1, 5))):
        position = header.header_size + data.draw(st.integers(0, header.statistics_size - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    read_statistics(memoryview(damaged), 0, header, TYPES)


def test_statistics_of_another_version_are_not_used() -> None:
    stored, header = vector("magic-1")
    damaged = bytearray(stored)
    struct.pack_into("<b", damaged, header.header_size, 2)
    assert read_statistics(memoryview(damaged), 0, header, TYPES) == {}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (InRanges("c0", (Range(1, 1),)), True),
        (InRanges("c0", (Range(301, 400),)), False),
        (InRanges("c0", (Range(301, 400), Range(-5, 1))), True),
        (InRanges("c0", (Range(-5, 1, without_high=True),)), False),
        (InRanges("c0", (Range(300, None, without_low=True),)), False),
        (InRanges("c0", (Range(300),)), True),
        (InRanges("c0", (Range(None, 0),)), False),
        (InRanges("c0", ()), False),
        # -0.0 equals 0.0.
        (InRanges("c5", (Range(0.0, 0.0),)), True),
        (InRanges("c5", (Range(0.0, None, without_low=True),)), False),
        (InRanges("c5", (Range(None, -0.0, without_high=True),)), False),
        # NaN is above all numbers.
        (InRanges("c6", (Range(1e300),)), True),
        (InRanges("c6", (Range(math.inf, None, without_low=True),)), True),
        (InRanges("c6", (Range(None, -1.5),)), True),
        (InRanges("c6", (Range(None, -1.6),)), False),
        (InRanges("c7", (Range(b"short", b"short"),)), True),
        (InRanges("c7", (Range(b"shorter"),)), False),
        (InRanges("c7", (Range(None, b"h\xc3"),)), False),
        (InRanges("c16", (Range(12345678901234567890123456789012345679),)), False),
        (InRanges("c16", (Range(12345678901234567890123456789012345678),)), True),
        # A column of nulls alone meets no condition but one.
        (InRanges("c17", (Range(),)), False),
        (Nullness("c17", is_null=True), True),
        (Nullness("c17", is_null=False), False),
        (Nullness("c0", is_null=True), False),
        (Nullness("c0", is_null=False), True),
        (Nullness("c1", is_null=True), True),
        # There are no statistics of it.
        (InRanges("c18", (Range(b"z"),)), True),
        (Nullness("c18", is_null=True), True),
    ],
)
def test_a_batch_is_left_out_if_none_of_its_rows_can_match(condition: Condition, *, expected: bool) -> None:
    for name in ("magic-1", "magic-2"):
        data, header = vector(name)
        assert BatchFilter(COLUMNS, [condition]).may_match(data, 0, header) is expected
        assert BatchFilter(COLUMNS, [Nullness("c0", is_null=False), condition]).may_match(data, 0, header) is expected
    assert BatchFilter(COLUMNS, []).may_match(data, 0, header)


def test_a_least_value_that_is_nan_tells_nothing() -> None:
    """Some writers order a NaN with a sign before all numbers, as the total order of IEEE 754 does."""
    stored, header = vector("magic-1")
    at = bytes(stored).index(struct.pack("<d", -1.5))
    data = bytearray(stored)
    struct.pack_into("<d", data, at, -math.nan)
    struct.pack_into("<d", data, bytes(data).index(struct.pack("<d", math.nan), at), 3.0)
    for wanted in (Range(5.0), Range(None, -5.0), Range(3.0, 3.0)):
        assert BatchFilter(COLUMNS, [InRanges("c6", (wanted,))]).may_match(memoryview(data), 0, header)
