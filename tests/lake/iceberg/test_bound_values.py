"""Single bounds in Iceberg's binary form, the places of row groups, and which columns get a dictionary."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written_files import SYSTEM

from fluss_tiering.lake.iceberg import parquet as writing
from fluss_tiering.lake.iceberg.metrics.bounds import decoded, encoded
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter, repeating_columns


@pytest.mark.parametrize("number", [-(10**37), -129, -128, -1, 0, 1, 127, 128, 10**37])
def test_a_long_decimal_is_bound_by_its_shortest_form(number: int):  # D40
    kind = pa.decimal128(38, 10)
    stored = number.to_bytes(16, "big", signed=True)
    sizes = (size for size in range(1, 17) if -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1)
    shortest = number.to_bytes(next(sizes), "big", signed=True)
    for value in (number, stored):
        assert encoded(kind, value, upper=False, length=16) == shortest
    assert decoded(kind, shortest) == number


@pytest.mark.parametrize("number", [-(2**31), -1, 0, 2**31 - 1])
def test_bounds_from_before_a_column_was_widened_are_read(number: int):  # D53
    assert decoded(pa.int64(), struct.pack("<i", number)) == number
    assert decoded(pa.int64(), struct.pack("<q", number)) == number
    assert decoded(pa.float64(), struct.pack("<f", 1.5)) == 1.5


@pytest.mark.parametrize(
    ("value", "length", "bound"),
    [
        (b"aX" + b"z" * 9, 2, b"aY"),
        (b"a\xff" + b"z" * 9, 2, b"b"),
        (b"\xff\xff" + b"z" * 9, 2, None),
        (b"aX", 2, b"aX"),
    ],
)
def test_an_upper_bound_of_bytes_is_the_next_value_of_its_length(value: bytes, length: int, bound: bytes | None):  # D40
    assert encoded(pa.binary(), value, upper=True, length=length) == bound
    assert encoded(pa.binary(), value, upper=False, length=length) == value[:length]


def test_a_file_tells_its_bucket_and_where_its_row_groups_begin(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(writing, "_MAX_BUFFERED_ROWS", 1)
    schema = pa.schema([pa.field("c", pa.int32(), metadata={"PARQUET:field_id": "1"}), *SYSTEM])
    piece = ParquetFileWriter(schema, None, ("none", None), 1 << 40, {}).open_piece(
        3, str(tmp_path / "new" / "folder" / "f"), 7, ("mon",)
    )
    for number in range(3):
        piece.write(pa.record_batch([pa.array([number], pa.int32())], names=["c"]), np.array([number]), np.array([0]))
    (file,) = piece.close()

    assert (file.bucket, file.partition_values) == (3, ("mon",))
    groups = pq.ParquetFile(file.location).metadata
    starts = [groups.row_group(number).column(0) for number in range(groups.num_row_groups)]
    expected = [min(filter(None, (each.dictionary_page_offset, each.data_page_offset))) for each in starts]
    assert list(file.metrics.split_offsets) == expected
    assert len(expected) == 3


def test_columns_whose_values_hardly_repeat_get_no_dictionary():
    count = 20_000
    numbers = np.arange(count)
    tenths = numbers // 2 % 10
    rows = pa.table(
        {
            "unique": numbers,
            "some": np.where(tenths < 1, 0, numbers),
            "most": np.where(tenths < 8, 0, numbers),
            "few values": numbers % 50,
        }
    )
    assert repeating_columns(rows, rows.nbytes) == ["most", "few values"]


def test_how_many_values_repeat_is_told_from_a_sample():
    count, random = 300_000, np.random.default_rng(1)
    rows = pa.table({str(size): random.integers(0, size, count) for size in (10_000, 30_000, 150_000)})
    # The dictionary of the last column would not fit: it would be given up in the middle of the file.
    assert repeating_columns(rows, rows.nbytes) == ["10000", "30000"]
    # Of large rows, fewer are looked at: of these, one in a hundred.
    assert repeating_columns(rows, (4 << 20) * 100 + 1) == ["10000", "30000"]


def test_nested_columns_are_never_said_to_repeat():
    rows = pa.table({"same": [1, 1], "nested": [[1], [1]]})
    assert repeating_columns(rows, rows.nbytes) == ["same"]
