"""Log batches decoded one behind the other are what each is by itself."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_tiering.formats.log_batch import (
    ChangeType,
    LogBatch,
    LogBatchHeader,
    decode_log_batch,
    decode_log_batches,
    encode_log_batch,
    read_header,
)
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string()), pa.field("flag", pa.bool_())])


def rows(first: int, count: int) -> pa.RecordBatch:
    ids = range(first, first + count)
    names = [None if each % 3 == 0 else f"name {each}" for each in ids]
    return pa.record_batch([list(ids), names, [each % 2 == 0 for each in ids]], schema=SCHEMA)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of a log, some without rows, each compressed in its own way."""
    parts, offset = [b"before"], 0
    for _ in range(draw(st.integers(1, 6))):
        count = draw(st.sampled_from([0, 1, 5, 300]))
        kinds = draw(st.none() | st.just(np.full(count, ChangeType.INSERT, np.uint8)))
        compression = draw(st.sampled_from(["NONE", "LZ4_FRAME", "ZSTD"]))
        parts.append(
            encode_log_batch(offset, 7, rows(offset, count), schema_id=1, change_types=kinds, compression=compression)
        )
        offset += max(count, 1)
    return b"".join(parts)


def headers(log: bytes) -> list[tuple[int, LogBatchHeader]]:
    found, position = [], len(b"before")
    while (header := read_header(memoryview(log), position)) is not None:
        found.append((position, header))
        position += header.size
    return found


def same(left: Sequence[LogBatch], right: Sequence[LogBatch]) -> bool:
    return len(left) == len(right) and all(
        (a.base_offset, a.commit_timestamp, None if a.change_types is None else a.change_types.tolist())
        == (b.base_offset, b.commit_timestamp, None if b.change_types is None else b.change_types.tolist())
        and a.records.equals(b.records)
        for a, b in zip(left, right, strict=True)
    )


@settings(max_examples=60, deadline=None)
@given(logs())
def test_a_run_is_its_batches(log: bytes) -> None:
    buffer = memoryview(log)
    each = [decode_log_batch(buffer, position, SCHEMA) for position, _ in headers(log)]
    assert same(list(decode_log_batches(buffer, headers(log), SCHEMA)), each)
    assert list(decode_log_batches(buffer, [], SCHEMA)) == []


@settings(max_examples=60, deadline=None)
@given(logs(), st.data())
def test_a_damaged_run_has_what_stands_before_the_damage(log: bytes, data: st.DataObject) -> None:
    batches = headers(log)
    number = data.draw(st.integers(0, len(batches) - 1))
    position, header = batches[number]
    damaged = bytearray(log)
    # Anything that the checksum covers, behind the header that is given.
    damaged[position + data.draw(st.integers(header.header_size - 23, header.size - 1))] ^= 1
    read: list[LogBatch] = []
    with pytest.raises(FlussTieringError, match=f"position {position} ") as caught:
        read.extend(decode_log_batches(memoryview(damaged), batches, SCHEMA))
    assert caught.value.code is ErrorCode.CORRUPT_DATA
    assert same(read, [decode_log_batch(memoryview(log), at, SCHEMA) for at, _ in batches[:number]])


@pytest.mark.parametrize("extra", [0, 8, 64])
def test_bytes_behind_a_message_are_not_read_as_the_next(extra: int) -> None:
    """Batches whose messages end before they do are decoded by themselves."""
    first = encode_log_batch(0, 7, rows(0, 5), schema_id=1, change_types=None, compression="NONE")
    longer = first + bytes(extra)
    length = len(longer) - 12
    longer = bytearray(longer)
    longer[8:12] = length.to_bytes(4, "little")

    longer[21:25] = crc32c(longer[25:]).to_bytes(4, "little")
    second = encode_log_batch(5, 7, rows(5, 5), schema_id=1, change_types=None, compression="ZSTD")
    log = b"before" + bytes(longer) + second
    found = list(decode_log_batches(memoryview(log), headers(log), SCHEMA))
    assert [batch.records.column("id").to_pylist() for batch in found] == [list(range(5)), list(range(5, 10))]
