"""Log batches that are decoded together are equal to those that are decoded one by one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from broken_columns import with_broken_last_column
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from cases import cases
from fluss_tiering.formats.log.batch import ChangeType, LogBatch, LogBatchHeader, encode_log_batch, read_header
from fluss_tiering.formats.log.decoding import decode_log_batch, decode_log_batches
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string()), pa.field("flag", pa.bool_())])


def rows(first: int, count: int) -> pa.RecordBatch:
    ids = range(first, first + count)
    names = [None if each % 3 == 0 else f"name {each}" for each in ids]
    return pa.record_batch([list(ids), names, [each % 2 == 0 for each in ids]], schema=SCHEMA)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Return the batches of a log, some of them without rows, each with a compression of its own."""
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
    # Any byte that the checksum covers, after the given header.
    damaged[position + data.draw(st.integers(header.header_size - 23, header.size - 1))] ^= 1
    read: list[LogBatch] = []
    with refused(ErrorCode.CORRUPT_DATA, f"position {position} "):
        read.extend(decode_log_batches(memoryview(damaged), batches, SCHEMA))
    assert same(read, [decode_log_batch(memoryview(log), at, SCHEMA) for at, _ in batches[:number]])


@pytest.mark.parametrize("extra", [0, 8, 64])
def test_bytes_behind_a_message_are_not_read_as_the_next(extra: int) -> None:
    """A batch whose message ends before the batch does is decoded by itself."""
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


SUBSETS = [[], [0], [1], [2], [0, 2], [0, 1, 2]]


@settings(max_examples=60, deadline=None)
@given(logs(), st.sampled_from(SUBSETS))
def test_some_columns_of_a_run_are_those_of_its_batches(log: bytes, included: list[int]) -> None:
    buffer = memoryview(log)
    each = [decode_log_batch(buffer, position, SCHEMA) for position, _ in headers(log)]
    chosen = [replace(batch, records=batch.records.select(included)) for batch in each]
    assert same(list(decode_log_batches(buffer, headers(log), SCHEMA, included=included)), chosen)
    alone = [decode_log_batch(buffer, position, SCHEMA, included=included) for position, _ in headers(log)]
    assert same(alone, chosen)
    assert [batch.records.num_rows for batch in alone] == [batch.records.num_rows for batch in each]


@cases("included", SUBSETS)
def test_only_the_columns_that_are_wanted_are_decoded(included: list[int]) -> None:
    of = pa.schema([SCHEMA.field("id"), SCHEMA.field("flag"), SCHEMA.field("name")])
    content = rows(0, 300).select(of.names)
    encoded = encode_log_batch(0, 7, content, schema_id=1, change_types=None, compression="ZSTD")
    log = b"before" + with_broken_last_column(encoded)
    if 2 in included:
        for decode in (decode_log_batch, lambda *batch, **wanted: list(decode_log_batches(*batch, **wanted))):
            at = len(b"before") if decode is decode_log_batch else headers(log)
            with refused(ErrorCode.CORRUPT_DATA, "no records of the table's schema"):
                decode(memoryview(log), at, of, included=included)
    else:
        (batch,) = decode_log_batches(memoryview(log), headers(log), of, included=included)
        assert batch.records.equals(content.select(included))


@cases("included", SUBSETS)
def test_some_columns_stand_under_the_checksum_of_all(included: list[int]) -> None:
    encoded = bytearray(encode_log_batch(0, 7, rows(0, 300), schema_id=1, change_types=None, compression="NONE"))
    encoded[-20] ^= 1
    log = b"before" + bytes(encoded)
    with pytest.raises(FlussTieringError, match="checksum"):
        list(decode_log_batches(memoryview(log), headers(log), SCHEMA, included=included))


def test_without_a_checksum_what_a_batch_says_of_itself_fits_together() -> None:
    encoded = bytearray(encode_log_batch(0, 7, rows(0, 5), schema_id=1, change_types=None, compression="ZSTD"))
    encoded[28] = 7  # the last offset
    log = b"before" + bytes(encoded)
    with refused(ErrorCode.CORRUPT_DATA, "claims the offsets 0 to 7 for 5 records"):
        list(decode_log_batches(memoryview(log), headers(log), SCHEMA, verify_crc=False))


def test_without_a_checksum_every_value_is_checked() -> None:
    content = pa.record_batch([["abc", "déf"]], names=["name"])
    encoded = encode_log_batch(0, 7, content, schema_id=1, change_types=None, compression="NONE")
    log = b"before" + encoded.replace("é".encode(), b"\xc3\xc3")
    with refused(ErrorCode.CORRUPT_DATA, "UTF"):
        list(decode_log_batches(memoryview(log), headers(log), content.schema, verify_crc=False))
