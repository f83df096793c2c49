import struct

import numpy as np
import pyarrow as pa
import pytest

from fluss_tiering.formats.log.batch import encode_log_batch, find_whole_batch, seek_batch

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
