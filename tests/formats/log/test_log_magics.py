"""Log batches of each magic that Fluss 1.0.0's own classes made, and log batches that are looked through."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from row_of_all_types import table_columns

from cases import cases
from fluss_tiering.formats.log.batch import (
    LogBatchHeader,
    check_crc,
    encode_log_batch,
    find_whole_batch,
    read_header,
    seek_batch,
)
from fluss_tiering.formats.log.decoding import decode_log_batch
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


def vector(name: str) -> tuple[memoryview, LogBatchHeader]:
    data = Path(__file__).parents[1].joinpath("data", f"fluss-1.0.0-{name}.bin").read_bytes()
    header = read_header(memoryview(data), 0)
    assert header is not None
    return memoryview(data), header


@cases(("name", "magic"), [("magic-0", 0), ("magic-1", 1), ("magic-2", 2), ("magic-1-without-statistics", 1)])
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


SIZES = (3, 1, 5, 2)
BASES = (100, 103, 104, 109)


def batch(base_offset: int, rows: int) -> bytes:
    return encode_log_batch(
        base_offset,
        0,
        pa.record_batch({"v": np.arange(rows)}),
        schema_id=1,
        change_types=None,
        compression="NONE",
    )


@pytest.fixture
def log() -> tuple[bytes, list[int]]:
    """Batches with the offsets 100 to 110, and their positions."""
    parts = [batch(base, size) for base, size in zip(BASES, SIZES, strict=True)]
    return b"".join(parts), [sum(map(len, parts[:index])) for index in range(len(parts) + 1)]


def test_the_batch_of_each_offset_is_found(log: tuple[bytes, list[int]]) -> None:
    data, positions = log
    for index, (base, size) in enumerate(zip(BASES, SIZES, strict=True)):
        for offset in range(base, base + size):
            assert seek_batch(memoryview(data), offset) == positions[index]
    assert seek_batch(memoryview(data), 0) == 0
    assert seek_batch(memoryview(data), 111) == positions[-1]
    assert seek_batch(memoryview(b""), 5) == 0


@pytest.mark.parametrize(("magic", "added"), [(1, 4), (2, 8)])
def test_a_batch_of_another_magic_is_passed_over_too(magic: int, added: int) -> None:
    first = batch(100, 3)
    length = struct.unpack_from("<i", first, 8)[0]
    epoch = bytes(4) if magic == 2 else b""
    other = first[:8] + struct.pack("<ib", length + added, magic) + first[13:21] + epoch + first[21:48]
    other += bytes(4) + first[48:]
    data = memoryview(other + batch(103, 1))
    assert seek_batch(data, 102) == 0
    assert seek_batch(data, 103) == len(other)


def test_the_search_stops_where_no_batch_can_be(log: tuple[bytes, list[int]]) -> None:
    data, positions = log
    for position, value in ((12, b"\7"), (8, struct.pack("<i", -5))):
        damaged = bytearray(data)
        damaged[positions[1] + position : positions[1] + position + len(value)] = value
        assert seek_batch(memoryview(damaged), 109) == positions[1]


def test_a_whole_batch_is_found_behind_a_damaged_place(log: tuple[bytes, list[int]]) -> None:
    data, positions = log
    damaged = bytearray(data)
    damaged[positions[1] : positions[1] + 40] = bytes(40)
    assert find_whole_batch(memoryview(damaged), positions[1], 103) == positions[2]
    assert find_whole_batch(memoryview(damaged), positions[1], 104) == positions[3]
    assert find_whole_batch(memoryview(damaged), positions[1], 109) is None
    assert find_whole_batch(memoryview(damaged[:-1]), positions[1], 104) is None
    assert find_whole_batch(memoryview(b"\xff" * 500), 0, 0) is None
    assert find_whole_batch(memoryview(b""), 0, 0) is None
