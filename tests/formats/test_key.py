import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import columns, record_batches
from compacted_reference import key, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_tiering.formats.keys import encode_keys
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType

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
    with pytest.raises(FlussTieringError, match="key column 'name' is null") as caught:
        encode_keys(pa.table({"id": [1, 2], "name": ["a", None]}), [ID, NAME])
    assert caught.value.code is ErrorCode.INVALID_ROWS


def test_a_nested_value_makes_no_key() -> None:
    tags = Column("tags", DataType.parse("ARRAY<INT> NOT NULL"))
    with pytest.raises(FlussTieringError, match="a key of type ARRAY<INT> NOT NULL") as caught:
        encode_keys(pa.table({"tags": pa.array([[1]], pa.list_(pa.int32()))}), [tags])
    assert caught.value.code is ErrorCode.INVALID_ROWS


def test_more_keys_than_an_array_holds_are_refused_before_they_are_written() -> None:
    zeros = pa.py_buffer(np.zeros(1_200_000_000, np.uint8))  # never touched, so never in memory
    offsets = pa.py_buffer(np.array([0, zeros.size], np.int32))
    huge = pa.StringArray.from_buffers(1, offsets, zeros)
    with pytest.raises(FlussTieringError, match="1 rows take 2400000010 bytes: expected at most 2147483647") as caught:
        encode_keys(pa.table({"name": huge, "other": huge}), [NAME, Column("other", NAME.data_type)])
    assert caught.value.code is ErrorCode.INVALID_ROWS
