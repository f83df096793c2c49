import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import columns, record_batches, same
from hypothesis import given, settings
from hypothesis import strategies as st
from log_batches import iter_log_batches

from cases import cases
from fluss_tiering.formats.log.batch import (
    ChangeType,
    LogBatch,
    LogCompression,
    check_crc,
    encode_log_batch,
    read_header,
)
from fluss_tiering.formats.log.decoding import decode_log_batch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType

COMPRESSIONS = ["NONE", "LZ4_FRAME", "ZSTD"]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
ROWS = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "name": ["a", None, "ccc"]}, SCHEMA)
HEADER = struct.Struct("<qibqIhbiqii")


def crc32c(data: bytes) -> int:
    """Return the checksum by the Castagnoli polynomial, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def encode(rows: pa.RecordBatch = ROWS, *kinds: ChangeType, base_offset: int = 40, compression: str = "NONE") -> bytes:
    change_types = np.array(kinds, np.uint8) if kinds else None
    return encode_log_batch(
        base_offset, 1_700_000_000_123, rows, schema_id=7, change_types=change_types, compression=compression
    )


def corrupt(data: bytes, position: int = 0, schema: pa.Schema = SCHEMA) -> str:
    with pytest.raises(FlussTieringError) as caught:
        decode_log_batch(memoryview(data), position, schema)
    assert caught.value.code is ErrorCode.CORRUPT_DATA
    assert f"the log batch at position {position} " in caught.value.message
    return caught.value.message


def resealed(data: bytes) -> bytes:
    """Return a batch of magic 0 with the checksum that fits its bytes."""
    return data[:21] + struct.pack("<I", crc32c(data[25:])) + data[25:]


def as_magic(magic: int, data: bytes, statistics: bytes = b"") -> bytes:
    """Return a batch of magic 0 as one of another magic, with a leader epoch of 5 if the magic has one."""
    epoch = struct.pack("<i", 5) if magic == 2 else b""
    (length,) = struct.unpack_from("<i", data, 8)
    length += len(epoch) + 4 + len(statistics)
    covered = data[25:48] + struct.pack("<i", len(statistics)) + statistics + data[48:]
    return (
        data[:8]
        + struct.pack("<ib", length, magic)
        + data[13:21]
        + epoch
        + struct.pack("<I", crc32c(covered))
        + covered
    )


def test_the_header_has_flusss_layout() -> None:
    data = encode(ROWS, ChangeType.INSERT, ChangeType.UPDATE_BEFORE, ChangeType.DELETE)
    message = ROWS.serialize().to_pybytes()
    expected = HEADER.pack(
        40,  # base offset
        len(data) - 12,  # length: all bytes after the length field, which ends at byte 12
        0,  # magic
        1_700_000_000_123,  # commit timestamp
        crc32c(data[25:]),  # from the schema id on, which is at 8 + 4 + 1 + 8 + 4
        7,  # schema id
        0,  # attributes: not append only
        2,  # last offset delta
        -1,  # no writer
        -1,  # no batch sequence
        3,  # records
    )
    assert len(expected) == 48
    assert data == expected + bytes([1, 2, 4]) + message


def test_an_append_only_batch_has_no_change_types() -> None:
    data = encode()
    assert data[27] == 1  # attributes, after the schema id
    assert data[48:] == ROWS.serialize().to_pybytes()


def test_a_header_is_read() -> None:
    data = encode(ROWS, *[ChangeType.INSERT] * 3)
    header = read_header(memoryview(b"??" + data), 2)
    assert header is not None
    assert (header.base_offset, header.last_offset, header.next_offset, header.record_count) == (40, 42, 43, 3)
    assert (header.size, header.header_size, header.magic, header.schema_id) == (len(data), 48, 0, 7)
    assert (header.commit_timestamp, header.append_only, header.statistics_size) == (1_700_000_000_123, False, 0)


@cases("statistics", [b"", b"any bytes"])
@cases(("magic", "size"), [(1, 52), (2, 56)])
def test_a_batch_with_statistics_is_read(magic: int, size: int, statistics: bytes) -> None:
    data = as_magic(magic, encode(ROWS, *[ChangeType.DELETE] * 3), statistics)
    header = read_header(pa.py_buffer(data), 0)
    assert header is not None
    assert (header.magic, header.header_size, header.size) == (magic, size, len(data))
    assert (header.statistics_size, header.change_types_start) == (len(statistics), size + len(statistics))
    assert (header.base_offset, header.next_offset, header.schema_id) == (40, 43, 7)
    check_crc(memoryview(data), 0, header)
    batch = decode_log_batch(memoryview(data), 0, SCHEMA)
    assert batch.records.equals(ROWS)
    assert batch.change_types is not None
    assert batch.change_types.tolist() == [ChangeType.DELETE] * 3
    for position in range(size - 27, len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        corrupt(bytes(changed))


@pytest.mark.parametrize("claimed", [-1, 500, 2**31 - 1])
def test_statistics_end_within_their_batch(claimed: int) -> None:
    data = bytearray(as_magic(1, encode()))
    struct.pack_into("<i", data, 48, claimed)
    assert f"claims {claimed} bytes of statistics in a batch of {len(data)} bytes" in corrupt(bytes(data))


def test_magics_mix_in_one_log() -> None:
    log = b"".join(
        (encode(), as_magic(1, encode(base_offset=43), b"statistics"), as_magic(2, encode(base_offset=46)), encode())
    )
    batches = list(iter_log_batches(memoryview(log), SCHEMA))
    assert [batch.base_offset for batch in batches] == [40, 43, 46, 40]
    assert all(batch.records.equals(ROWS) for batch in batches)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_nested_values_come_back(compression: LogCompression) -> None:
    types = ("ARRAY<INT>", "MAP<STRING, ARRAY<BYTES>>", "ROW<a INT NOT NULL, b MAP<TIME(3), DECIMAL(20, 1)>>")
    values: list[list[object]] = [
        [[1, None], None, []],
        [[("k", [b"x", None])], [("", None)], None],
        [{"a": 1, "b": [(1, Decimal("1.5"))]}, None, {"a": -1, "b": None}],
    ]
    schema = arrow_schema([Column(f"c{index}", DataType.parse(text)) for index, text in enumerate(types)])
    arrays = [pa.array(items, field.type) for items, field in zip(values, schema, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for part in (rows, rows.slice(1), rows.slice(1, 1), rows.slice(3)):
        encoded = encode_log_batch(0, 1, part, schema_id=1, change_types=None, compression=compression)
        assert decode_log_batch(memoryview(encoded), 0, schema).records.equals(part)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_batch_comes_back_from_anywhere_in_a_buffer(data: st.DataObject) -> None:
    of = data.draw(columns(6))
    rows = data.draw(record_batches(of))
    kinds = data.draw(st.none() | st.lists(st.sampled_from(ChangeType), min_size=rows.num_rows, max_size=rows.num_rows))
    change_types = None if kinds is None else np.array(kinds, np.uint8)
    base_offset = data.draw(st.integers(0, 2**63 - 100))
    encoded = encode_log_batch(
        base_offset,
        data.draw(st.integers(-1, 2**62)),
        rows,
        schema_id=data.draw(st.integers(0, 32767)),
        change_types=change_types,
        compression=data.draw(st.sampled_from(COMPRESSIONS)),
    )
    before = data.draw(st.binary(max_size=9))
    behind = data.draw(st.binary(max_size=9))
    batch = decode_log_batch(memoryview(before + encoded + behind), len(before), arrow_schema(of))
    assert batch.base_offset == base_offset
    assert same(batch.records, rows)
    assert (batch.change_types is None) == (kinds is None)
    assert batch.change_types is None or batch.change_types.tolist() == kinds


@pytest.mark.parametrize(("compression", "frame"), [("LZ4_FRAME", "04224D18"), ("ZSTD", "28B52FFD")])
def test_the_body_is_compressed_as_asked_for(compression: str, frame: str) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [5] * 10_000, "name": ["the same"] * 10_000}, SCHEMA)
    data = encode(rows, compression=compression)
    assert bytes.fromhex(frame) in data
    assert len(data) < len(encode(rows)) // 4
    assert decode_log_batch(memoryview(data), 0, SCHEMA).records.equals(rows)


def test_an_uncompressed_batch_is_not_copied() -> None:
    buffer = pa.py_buffer(b"x" * 3 + encode())
    values = decode_log_batch(buffer, 3, SCHEMA).records.column("id").buffers()[1]
    assert buffer.address <= values.address < buffer.address + buffer.size


@pytest.mark.parametrize("kinds", [(), (ChangeType.INSERT,)])
def test_a_batch_without_records_takes_one_offset_and_no_message(kinds: tuple[ChangeType, ...]) -> None:
    nothing = ROWS.slice(0, 0)
    change_types = np.array(kinds, np.uint8)[:0] if kinds else None
    data = encode_log_batch(9, 0, nothing, schema_id=1, change_types=change_types, compression="ZSTD")
    assert len(data) == 48
    header = read_header(memoryview(data), 0)
    assert header is not None
    assert (header.base_offset, header.last_offset, header.next_offset, header.record_count) == (9, 9, 10, 0)
    batch = decode_log_batch(memoryview(data), 0, SCHEMA)
    assert batch.records.schema == SCHEMA
    assert batch.records.num_rows == 0


def test_batches_follow_each_other_up_to_a_torn_one() -> None:
    whole = encode() + encode(base_offset=43) + encode(ROWS.slice(0, 0), base_offset=46)
    torn = encode(base_offset=47)
    for left in range(len(torn)):
        log = memoryview(b"#" + whole + torn[:left])
        batches = list(iter_log_batches(log, SCHEMA, position=1))
        assert [batch.base_offset for batch in batches] == [40, 43, 46]
        assert read_header(log, 1 + len(whole)) is None
    assert "is incomplete" in corrupt(whole + torn[:-1], len(whole))


def test_one_changed_bit_is_found() -> None:
    data = encode(ROWS, *[ChangeType.INSERT] * 3)
    for position in range(21, len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        header = read_header(memoryview(changed), 0) if position >= 48 else None
        message = corrupt(bytes(changed))
        if header is not None:
            assert "has the checksum" in message
            with pytest.raises(FlussTieringError, match="has the checksum"):
                check_crc(memoryview(changed), 0, header)


@cases(
    ("at", "layout", "value", "message"),
    [
        (12, "<b", 3, "has magic 3, expected one of 0, 1, 2"),
        (12, "<b", -1, "has magic -1, expected one of 0, 1, 2"),
        (8, "<i", 35, "claims 47 bytes in all, which is less than its header"),
        (8, "<i", -1, "claims 11 bytes in all"),
        (0, "<q", -1, "claims 3 records from offset -1 to 1"),
        (28, "<i", 1, "claims 3 records from offset 40 to 41"),
        (44, "<i", -1, "claims -1 records"),
    ],
)
def test_what_is_no_header_is_refused_with_its_position(at: int, layout: str, value: int, message: str) -> None:
    data = bytearray(encode())
    struct.pack_into(layout, data, at, value)
    assert message in corrupt(b"??" + bytes(data), 2)


def test_zeros_at_the_end_of_a_log_are_no_batch() -> None:
    assert "claims 12 bytes in all" in corrupt(encode() + bytes(100), len(encode()))


def test_records_must_be_as_many_as_claimed_and_of_the_schema() -> None:
    data = bytearray(encode())
    struct.pack_into("<i", data, 28, 3)
    struct.pack_into("<i", data, 44, 4)
    assert "holds 3 records, expected 4" in corrupt(resealed(bytes(data)))
    longer = pa.schema([*SCHEMA, pa.field("more", pa.int64())])
    assert "holds no records of the table's schema" in corrupt(encode(), schema=longer)
    wider = pa.schema([pa.field("id", pa.decimal128(38, 0)), SCHEMA.field("name")])
    assert "holds no records of the table's schema" in corrupt(encode(), schema=wider)
    assert "holds no records of the table's schema" in corrupt(resealed(data[:48] + b"\xff" * (len(data) - 48)))


def test_change_types_must_be_known_and_there() -> None:
    unknown = bytearray(encode(ROWS, *[ChangeType.INSERT] * 3))
    unknown[49] = 5
    assert "has change type 5, expected at most 4" in corrupt(resealed(bytes(unknown)))
    empty = bytearray(encode(ROWS.slice(0, 0)))
    struct.pack_into("<b", empty, 27, 0)
    struct.pack_into("<i", empty, 28, 2)
    struct.pack_into("<i", empty, 44, 3)
    assert "claims 3 change types but ends before them" in corrupt(resealed(bytes(empty)))
    with pytest.raises(ValueError, match="1 change types for 3 records"):
        encode(ROWS, ChangeType.INSERT)


def test_unverified_bytes_are_taken_as_they_are() -> None:
    data = bytearray(encode())
    data[21] ^= 1
    batch = decode_log_batch(memoryview(data), 0, SCHEMA, verify_crc=False)
    assert batch.records.equals(ROWS)


@settings(deadline=None)
@given(st.integers(0, 20), st.integers(0, 20))
def test_a_slice_holds_the_records_of_an_offset_range(from_offset: int, to_offset: int) -> None:
    rows = pa.RecordBatch.from_pydict({"offset": list(range(5, 13))})
    kinds = np.arange(8, dtype=np.uint8) % 5
    for change_types in (None, kinds):
        part = LogBatch(5, 99, change_types, rows).slice(from_offset, to_offset)
        offsets = [offset for offset in range(5, 13) if from_offset <= offset < to_offset]
        assert part.records.column("offset").to_pylist() == offsets
        assert part.commit_timestamp == 99
        assert not offsets or part.base_offset == offsets[0]
        if change_types is not None:
            assert part.change_types is not None
            assert part.change_types.tolist() == [kinds[offset - 5] for offset in offsets]
