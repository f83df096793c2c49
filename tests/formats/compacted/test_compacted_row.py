import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from arrow_strategies import columns, record_batches, same
from compacted_reference import rows_of, value, varint
from hypothesis import given, settings
from hypothesis import strategies as st
from row_of_all_types import (
    FURTHER,
    FURTHER_COLUMNS,
    VECTOR,
    VECTOR_COLUMNS,
    table_columns,
    vector_batch,
)

from cases import cases
from fluss_tiering.formats.compacted.row import decode_values, encode_values
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType


def corrupt(stored: bytes | list[bytes], of: tuple[Column, ...], schema_id: int = 1) -> str:
    values = pa.array(stored if isinstance(stored, list) else [stored], pa.binary())
    with pytest.raises(FlussTieringError) as caught:
        decode_values(values, of, schema_id)
    assert caught.value.code is ErrorCode.CORRUPT_DATA
    return caught.value.message


def test_the_schema_id_is_two_bytes() -> None:
    batch = vector_batch()
    stored = encode_values(batch, VECTOR_COLUMNS, 0x0203)
    assert stored[0].as_py() == b"\x03\x02" + VECTOR[2:]
    assert decode_values(stored, VECTOR_COLUMNS, 0x0203).equals(batch)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_rows_have_the_bytes_of_the_reference_and_come_back(data: st.DataObject) -> None:
    of = data.draw(columns())
    batch = data.draw(record_batches(of))
    schema_id = data.draw(st.sampled_from([0, 1, 255, 256, 32767]))
    stored = encode_values(batch, of, schema_id)
    assert stored.to_pylist() == [value(row, of, batch.schema, schema_id) for row in rows_of(batch)]
    assert same(decode_values(stored, of, schema_id), batch)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_nested_rows_have_the_bytes_of_the_reference_and_come_back(data: st.DataObject) -> None:
    of = data.draw(columns(2, nesting=3))
    batch = data.draw(record_batches(of, max_rows=4))
    stored = encode_values(batch, of, 1)
    assert stored.to_pylist() == [value(row, of, batch.schema, 1) for row in rows_of(batch)]
    assert same(decode_values(stored, of, 1), batch)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_slice_of_values_is_a_slice_of_rows(data: st.DataObject) -> None:
    of = data.draw(columns(6))
    batch = data.draw(record_batches(of))
    start = data.draw(st.integers(0, batch.num_rows))
    length = data.draw(st.integers(0, batch.num_rows - start))
    stored = encode_values(batch, of, 1).slice(start, length)
    assert same(decode_values(stored, of, 1), batch.slice(start, length))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_some_columns_of_any_rows_are_those_of_all(data: st.DataObject) -> None:
    of = data.draw(columns(10, nesting=2))
    batch = data.draw(record_batches(of))
    included = sorted(data.draw(st.sets(st.integers(0, len(of) - 1))))
    found = decode_values(encode_values(batch, of, 1), of, 1, included)
    assert found.num_rows == batch.num_rows
    assert same(found, batch.select(included))


def test_columns_behind_the_last_one_wanted_are_not_looked_at() -> None:
    of = table_columns("INT", "STRING", "BIGINT")
    values = pa.array([b"\x01\x00\x00\x05\x01a"], pa.binary())
    assert decode_values(values, of, 1, [0, 1]).to_pydict() == {"c0": [5], "c1": ["a"]}
    assert decode_values(values, of, 1, [1]).to_pydict() == {"c1": ["a"]}
    with pytest.raises(FlussTieringError, match="'c2'"):
        decode_values(values, of, 1)
    # The column before it must be skipped.
    with pytest.raises(FlussTieringError, match="'c1'") as caught:
        decode_values(pa.array([b"\x01\x00\x00\x05\x09a"], pa.binary()), of, 1, [2])
    assert caught.value.code is ErrorCode.CORRUPT_DATA


def test_many_rows_of_many_blocks_come_back() -> None:
    of = table_columns("BIGINT", "STRING", "DECIMAL(38, 4)", "TIMESTAMP(6)")
    count = 100_000
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(range(count)),
            pa.array([None if index % 7 == 0 else "x" * (index % 50) for index in range(count)]),
            pa.array([Decimal(index - count // 2) for index in range(count)], pa.decimal128(38, 4)),
            pa.array([(index - count // 2) * 123_456_789 for index in range(count)], pa.timestamp("us")),
        ],
        schema=arrow_schema(of),
    )
    assert decode_values(encode_values(batch, of, 1), of, 1).equals(batch)


def test_many_nested_rows_come_back() -> None:
    """Nested rows have more elements than a group of null bits. Nulls with elements under them come before them."""
    of = table_columns("ARRAY<ARRAY<INT>>", "MAP<STRING, ARRAY<TIMESTAMP(9)>>", "ROW<a ARRAY<BOOLEAN>>")
    deep = [[[None if n % 3 == 0 else n for n in range(m * 7 % 100)]] * (m % 4) for m in range(300)]
    maps = [[("x" * n, [None if n % 2 else n * 1_000_001]) for n in range(m % 70)] for m in range(300)]
    bits = [{"a": [n % 5 == 0 if n % 33 else None for n in range(m)]} for m in range(300)]
    arrays = [pa.array(rows, field.type) for rows, field in zip((deep, maps, bits), arrow_schema(of), strict=True)]
    nulls = pa.array([m % 11 == 0 for m in range(300)])
    arrays[0] = pa.ListArray.from_arrays(arrays[0].offsets, arrays[0].values, arrays[0].type, mask=nulls)
    arrays[2] = pa.StructArray.from_arrays(arrays[2].flatten(), fields=list(arrays[2].type), mask=nulls)
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(of)).slice(7)
    stored = encode_values(batch, of, 1)
    assert stored.to_pylist() == [value(row, of, batch.schema, 1) for row in rows_of(batch)]
    assert same(decode_values(stored, of, 1), batch)


def test_a_null_in_a_not_null_column_is_not_written() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int32())], names=["c0"])
    with pytest.raises(FlussTieringError, match="'c0' is null") as caught:
        encode_values(batch, table_columns("INT NOT NULL"), 1)
    assert caught.value.code is ErrorCode.INVALID_ROWS


def test_a_value_cut_off_anywhere_is_corrupt() -> None:
    for stored, of in ((VECTOR, VECTOR_COLUMNS), (FURTHER, FURTHER_COLUMNS)):
        for size in range(len(stored)):
            assert "the stored value 1 of 2 " in corrupt([stored, stored[:size]], of)


def test_a_value_that_goes_on_is_corrupt() -> None:
    assert corrupt(VECTOR + b"\0", VECTOR_COLUMNS) == "the stored value 0 of 1 goes on after its last column"


def test_another_schema_id_is_corrupt() -> None:
    assert corrupt(VECTOR, VECTOR_COLUMNS, 2) == "the stored value 0 of 1 has another schema id than 2"
    assert "has another schema id than 1" in corrupt(b"\x01\x01" + VECTOR[2:], VECTOR_COLUMNS)


@cases(
    ("kind", "fields", "message"),
    [
        ("INT", b"\x80", "holds no INT in column 'c0'"),
        ("INT", b"\x80\x80\x80\x80\x10", "holds no INT"),  # more than 32 bits
        ("BIGINT", b"\x80" * 9 + b"\x02", "holds no BIGINT"),  # more than 64 bits
        ("BIGINT", b"\x80" * 11 + b"\x01", "holds no BIGINT"),
        ("DOUBLE", b"\0" * 7, "holds no DOUBLE"),
        ("BOOLEAN", b"", "holds no BOOLEAN"),
        ("STRING", b"\x03ab", "holds no STRING"),
        ("STRING", b"\xff\xff\xff\xff\x0f", "holds no STRING"),  # a length of -1
        ("STRING", b"\xff\xff\xff\xff\x07", "holds no STRING"),  # a length of 2**31 - 1
        ("STRING", b"\x01\xff", "has no valid STRING in column 'c0': Invalid UTF8"),
        ("DECIMAL(20, 0)", b"\x00", "has 0 bytes for the decimal in column 'c0', expected 1 to 16"),
        ("DECIMAL(20, 0)", b"\x11" + b"\0" * 17, "has 17 bytes for the decimal"),
        ("DECIMAL(20, 0)", b"\x0a\x7f" + b"\0" * 9, "has no valid DECIMAL(20, 0) in column 'c0'"),
        ("DECIMAL(2, 0)", b"\x64", "has no valid DECIMAL(2, 0) in column 'c0'"),  # 100
        ("TINYINT", b"", "holds no TINYINT"),
        ("SMALLINT", b"\x01", "holds no SMALLINT"),
        ("FLOAT", b"\0" * 3, "holds no FLOAT"),
        ("CHAR(2)", b"\x01\xff", "has no valid CHAR(2) in column 'c0': Invalid UTF8"),
        ("BINARY(3)", b"\x02ab", "does not have 3 bytes in column 'c0'"),
        ("TIME(0)", varint(86_400_000, 32), "has a time outside of a day in column 'c0'"),
        ("TIME(9)", varint(-1, 32), "has a time outside of a day"),
        ("TIMESTAMP(6)", b"\x01", "holds no TIMESTAMP"),
        ("TIMESTAMP(6)", b"\x01" + varint(1_000_000, 32), "has more nanoseconds than a millisecond"),
        ("TIMESTAMP(6)", b"\x01" + varint(-1, 32), "has more nanoseconds than a millisecond"),
        ("TIMESTAMP(6)", varint(2**62, 64) + b"\0", "that timestamp[us] cannot hold"),
        ("TIMESTAMP_LTZ(9)", varint(-(2**63), 64) + b"\0", "that timestamp[ns] cannot hold"),
    ],
)
def test_a_field_that_is_none_is_corrupt(kind: str, fields: bytes, message: str) -> None:
    assert message in corrupt(b"\x01\x00\x00" + fields, table_columns(kind))


def test_a_null_bit_of_a_not_null_column_is_corrupt() -> None:
    assert "has a null for column 'c1', which is INT NOT NULL" in corrupt(
        b"\x01\x00\x02\x01", table_columns("INT", "INT NOT NULL")
    )


def rows_or_corrupt(stored: bytes, of: tuple[Column, ...]) -> None:
    """Check that bytes are refused, or are rows that can be stored and read again."""
    try:
        batch = decode_values(pa.array([stored]), of, 1)
    except FlussTieringError as error:
        if error.code is not ErrorCode.CORRUPT_DATA:
            raise
        return
    batch.validate(full=True)
    assert same(decode_values(encode_values(batch, of, 1), of, 1), batch)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(of=columns(10, nesting=2), stored=st.binary(max_size=60))
def test_any_bytes_are_rows_or_corrupt(of: tuple[Column, ...], stored: bytes) -> None:
    rows_or_corrupt(b"\x01\x00" + stored, of)


@settings(max_examples=100, deadline=None)
@given(position=st.integers(0, len(VECTOR) - 1), byte=st.integers(0, 255))
def test_any_changed_byte_gives_a_row_or_is_corrupt(position: int, byte: int) -> None:
    rows_or_corrupt(VECTOR[:position] + bytes([byte]) + VECTOR[position + 1 :], VECTOR_COLUMNS)


def stored(data: bytes) -> bytes:
    """Return a row with one column: schema id, null bits, length, and this value of less than 128 bytes."""
    return bytes([1, 0, 0, len(data)]) + data


def read(rows: list[bytes], text: str) -> list[object]:
    return decode_values(pa.array(rows, pa.binary()), [Column("c", DataType.parse(text))], 1).column(0).to_pylist()


@cases(
    ("text", "data"),
    [
        ("ARRAY<INT>", b""),
        ("ARRAY<INT>", struct.pack("<i", -1)),
        ("ARRAY<INT>", struct.pack("<ii", 1, 0)),
        ("ARRAY<INT>", struct.pack("<ii", 2**31 - 1, 0)),
        ("ARRAY<STRING>", struct.pack("<iiq", 1, 0, 16 << 32 | 1)),
        ("ARRAY<STRING>", struct.pack("<iiq", 1, 0, -1)),
        # The slot claims more bytes than it has.
        ("ARRAY<BYTES>", struct.pack("<ii", 2, 0) + b"abcdefg\x89" + b"abcdefg\x87"),
        # The parts overlap, and together they are longer than the data.
        ("ARRAY<STRING>", struct.pack("<iiqqq", 3, 0, *[32 << 32 | 40] * 3) + b"x" * 40),
        ("ARRAY<ARRAY<INT>>", struct.pack("<iiq", 1, 0, 16 << 32 | 8) + struct.pack("<ii", 1, 0)),
        ("ARRAY<DECIMAL(20, 0)>", struct.pack("<iiq", 1, 0, 16 << 32 | 17) + bytes(24)),
        ("ARRAY<TIMESTAMP(6)>", struct.pack("<iiq", 1, 0, -1 << 32)),
        ("ARRAY<TIMESTAMP(6)>", struct.pack("<iiqi", 1, 0, 16 << 32, 0)),
        ("ARRAY<TIMESTAMP(6)>", struct.pack("<iiqq", 1, 0, 16 << 32 | 1_000_000, 0)),
        ("ARRAY<TIME(3)>", struct.pack("<iii", 1, 0, 86_400_000)),
        ("MAP<INT, INT>", struct.pack("<iiiiiii", 12, 1, 1, 0, 1, 0, 0)),
        ("MAP<INT, INT>", struct.pack("<iiii", 12, 1, 0, 5)),
        ("MAP<INT, INT>", struct.pack("<i", -1)),
        ("MAP<INT, INT>", struct.pack("<iiiii", 12, 1, 0, 5, 0)),
        ("ROW<a INT>", b"\x00"),
        ("ROW<a INT>", b"\x00\x80"),
        ("ROW<a INT>", b"\x00\x01\x00"),
        ("ROW<a STRING>", b"\x00\xff\xff\xff\xff\x0f"),
        ("ROW<a STRING>", b"\x00\x01\xff"),
        ("ROW<a ROW<b INT>>", b"\x00\x03\x00\x01\x00"),
    ],
)
def test_what_is_no_value_is_refused(text: str, data: bytes) -> None:
    empty = bytes([1, 0, 1])
    with pytest.raises(FlussTieringError, match="'c") as caught:
        read([empty, stored(data), empty], text)
    assert caught.value.code is ErrorCode.CORRUPT_DATA
    if "UTF8" not in caught.value.message:
        assert "the stored value 1 of 3" in caught.value.message


def test_small_and_large_parts_of_an_array() -> None:
    small = struct.pack("<i", 2) + b"\x02\0\0\0" + b"abc\0\0\0\0\x83" + bytes(8)
    assert read([stored(small)], "ARRAY<STRING>") == [["abc", None]]
    large = struct.pack("<iiq", 1, 0, 16 << 32 | 8) + b"abcdefgh"
    assert read([stored(large), stored(large)], "ARRAY<BYTES>") == [[b"abcdefgh"], [b"abcdefgh"]]
