"""Keys, their hashes and their buckets, as Fluss and the specification of Iceberg have them."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import columns, record_batches
from compacted_reference import key, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as iceberg
from pyiceberg.transforms import BucketTransform
from refusals import refused

from cases import cases
from fluss_tiering.formats.bucketing import assign_buckets, check_bucket_key_type
from fluss_tiering.formats.keys import encode_iceberg_keys, encode_keys
from fluss_tiering.formats.schema import arrow_schema, arrow_type
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType

ALL_31_BITS = 2**31 - 1


@cases(
    ("value", "text", "hash_of_specification"),
    [
        # Iceberg's specification, appendix B: the hash of each value, seed 0.
        (34, "INT", 2017239379),
        (34, "BIGINT", 2017239379),
        (Decimal("14.20"), "DECIMAL(9, 2)", -500754589),
        (Decimal("14.20"), "DECIMAL(38, 2)", -500754589),
        (dt.date(2017, 11, 16), "DATE", -653330422),
        (dt.datetime.fromisoformat("2017-11-16T22:31:08"), "TIMESTAMP(0)", -2047944441),
        (dt.datetime.fromisoformat("2017-11-16T22:31:08"), "TIMESTAMP(3)", -2047944441),
        (dt.datetime.fromisoformat("2017-11-16T22:31:08"), "TIMESTAMP(6)", -2047944441),
        (dt.datetime.fromisoformat("2017-11-16T22:31:08"), "TIMESTAMP(9)", -2047944441),
        (dt.datetime.fromisoformat("2017-11-16T22:31:08.000001"), "TIMESTAMP(6)", -1207196810),
        (dt.datetime.fromisoformat("2017-11-16T22:31:08"), "TIMESTAMP_LTZ(6)", -2047944441),
        ("iceberg", "STRING", 1210000089),
        ("", "STRING", 0),
        ("iceberg", "CHAR(9)", 1210000089),
        (dt.time(22, 31, 8), "TIME(0)", -662762989),
        (dt.time(22, 31, 8), "TIME(3)", -662762989),
        (dt.time(22, 31, 8), "TIME(6)", -662762989),
        (dt.time(22, 31, 8), "TIME(9)", -662762989),
        (b"\x00\x01\x02\x03", "BINARY(4)", -188683207),
        (b"\x00\x01\x02\x03", "BYTES", -188683207),
        (34, "TINYINT", 2017239379),
        (34, "SMALLINT", 2017239379),
    ],
)
def test_hashes_are_those_of_icebergs_specification(value: object, text: str, hash_of_specification: int) -> None:
    data_type = DataType.parse(text)
    buckets = assign_buckets(pa.array([value], arrow_type(data_type)), data_type, ALL_31_BITS)
    assert buckets.dtype == np.int32
    assert buckets.tolist() == [(hash_of_specification & ALL_31_BITS) % ALL_31_BITS]


KEYS = {
    "INT": (iceberg.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "BIGINT": (iceberg.LongType(), st.integers(-(2**63), 2**63 - 1)),
    "TINYINT": (iceberg.IntegerType(), st.integers(-(2**7), 2**7 - 1)),
    "SMALLINT": (iceberg.IntegerType(), st.integers(-(2**15), 2**15 - 1)),
    "STRING": (iceberg.StringType(), st.text(max_size=40)),
    "BINARY(5)": (iceberg.BinaryType(), st.binary(min_size=5, max_size=5)),
    "BYTES": (iceberg.BinaryType(), st.binary(max_size=40)),
    "DATE": (iceberg.DateType(), st.integers(-(2**31), 2**31 - 1)),
    "TIMESTAMP(6)": (iceberg.TimestampType(), st.integers(-(2**63), 2**63 - 1)),
    "TIMESTAMP_LTZ(6)": (iceberg.TimestamptzType(), st.integers(-(2**63), 2**63 - 1)),
    "DECIMAL(18, 3)": (iceberg.DecimalType(18, 3), st.decimals(places=3, min_value=-(10**14), max_value=10**14)),
    "DECIMAL(38, 10)": (
        iceberg.DecimalType(38, 10),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda unscaled: Decimal(f"{unscaled}e-10")),
    ),
}


@pytest.mark.parametrize("text", KEYS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_buckets_are_those_of_icebergs_transform(text: str, data: st.DataObject) -> None:
    iceberg_type, values_of_type = KEYS[text]
    values = data.draw(st.lists(values_of_type, min_size=1, max_size=20))
    num_buckets = data.draw(st.integers(1, 1000))
    skipped = data.draw(st.integers(0, len(values) - 1))
    data_type = DataType.parse(text)
    transform = BucketTransform(num_buckets).transform(iceberg_type)
    expected = [transform(value) for value in values[skipped:]]
    assert (
        assign_buckets(pa.array(values, arrow_type(data_type)).slice(skipped), data_type, num_buckets).tolist()
        == expected
    )


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=10))
@settings(max_examples=20, deadline=None)
def test_nanoseconds_are_hashed_as_the_microseconds_they_are_in(nanoseconds: list[int]) -> None:
    fine = pa.array(nanoseconds, pa.timestamp("ns"))
    coarse = pa.array([value // 1000 for value in nanoseconds], pa.timestamp("us"))
    assert np.array_equal(
        assign_buckets(fine, DataType.parse("TIMESTAMP(9)"), 97),
        assign_buckets(coarse, DataType.parse("TIMESTAMP(6)"), 97),
    )


@pytest.mark.parametrize("text", ["BOOLEAN", "FLOAT", "DOUBLE NOT NULL"])
def test_types_that_iceberg_cannot_bucket_are_refused(text: str) -> None:
    data_type = DataType.parse(text)
    with pytest.raises(FlussTieringError, match=text) as caught:
        assign_buckets(pa.nulls(0, arrow_type(data_type)), data_type, 4)
    assert caught.value.code is ErrorCode.INVALID_TABLE
    with pytest.raises(FlussTieringError):
        check_bucket_key_type(data_type)


def test_a_null_bucket_key_is_refused() -> None:
    with refused(ErrorCode.INVALID_ROWS, "bucket key is null"):
        assign_buckets(pa.array([1, None], pa.int32()), DataType.parse("INT"), 4)


def test_no_keys_have_no_buckets() -> None:
    for text in KEYS:
        data_type = DataType.parse(text)
        assert assign_buckets(pa.nulls(0, arrow_type(data_type)), data_type, 4).size == 0


ID = Column("id", DataType.parse("BIGINT NOT NULL"))
NAME = Column("name", DataType.parse("STRING NOT NULL"))


def test_a_key_is_its_columns_fields_in_key_order() -> None:
    rows = pa.table({"name": ["ab", ""], "other": [1, 2], "id": [300, -1]})
    assert encode_keys(rows, [ID, NAME]).to_pylist() == [
        # 300 = 0b10_0101100: groups of 7 bits, lowest first, all but the last with the high bit. Then 2 bytes of text.
        bytes.fromhex("AC 02") + b"\x02ab",
        # -1 is 64 one bits, which are 9 groups of 7 and one more bit. Then no text.
        bytes.fromhex("FF FF FF FF FF FF FF FF FF 01") + b"\x00",
    ]
    assert encode_keys(rows, [NAME, ID]).to_pylist()[0] == b"\x02ab" + bytes.fromhex("AC 02")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_keys_of_any_columns_are_those_of_the_reference(data: st.DataObject) -> None:
    key_columns = data.draw(columns(4, nullable=False))
    batch = data.draw(record_batches(key_columns))
    expected = [key(row, key_columns, batch.schema) for row in rows_of(batch)]
    assert encode_keys(batch, key_columns).to_pylist() == expected


def test_a_table_in_pieces_has_the_keys_of_its_pieces() -> None:
    table = pa.table({"id": pa.chunked_array([[1, 2], [], [3]], pa.int64())})
    assert encode_keys(table, [ID]).to_pylist() == [b"\x01", b"\x02", b"\x03"]
    assert len(encode_keys(arrow_schema([ID]).empty_table(), [ID])) == 0


def test_a_null_in_a_key_is_refused() -> None:
    with refused(ErrorCode.INVALID_ROWS, "key column 'name' is null"):
        encode_keys(pa.table({"id": [1, 2], "name": ["a", None]}), [ID, NAME])


def test_a_nested_value_makes_no_key() -> None:
    tags = Column("tags", DataType.parse("ARRAY<INT> NOT NULL"))
    with refused(ErrorCode.INVALID_ROWS, "a key of type ARRAY<INT> NOT NULL"):
        encode_keys(pa.table({"tags": pa.array([[1]], pa.list_(pa.int32()))}), [tags])


def test_more_keys_than_an_array_holds_are_refused_before_they_are_written() -> None:
    zeros = pa.py_buffer(np.zeros(1_200_000_000, np.uint8))  # never touched, so never in memory
    offsets = pa.py_buffer(np.array([0, zeros.size], np.int32))
    huge = pa.StringArray.from_buffers(1, offsets, zeros)
    with refused(ErrorCode.INVALID_ROWS, "1 rows take 2400000010 bytes: expected at most 2147483647"):
        encode_keys(pa.table({"name": huge, "other": huge}), [NAME, Column("other", NAME.data_type)])


@cases(
    ("kind", "value", "expected"),
    [
        ("BINARY(4)", b"\x00\xff\x7f\x80", b"\x00\xff\x7f\x80"),
        ("BYTES", b"", b""),
        ("STRING", "ß\U0001f600", "ß\U0001f600".encode()),
        ("CHAR(2)", "ab", b"ab"),
        ("INT", -1, b"\xff" * 8),
        ("BIGINT", 34, b"\x22" + bytes(7)),
    ],
)
def test_the_key_of_a_row(kind: str, value: object, expected: bytes) -> None:
    column = Column("k", DataType.parse(f"{kind} NOT NULL"))
    rows = pa.RecordBatch.from_pylist([{"k": value}, {"k": value}], schema=arrow_schema([column]))
    assert encode_iceberg_keys(rows, column).to_pylist() == [expected, expected]
    assert encode_iceberg_keys(rows.slice(1), column).to_pylist() == [expected]
