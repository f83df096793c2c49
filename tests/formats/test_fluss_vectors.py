"""Bytes that Fluss 0.9.1's own classes made (`data/FlussVectors.java`) are written and read in the same way here."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from compacted_reference import rows_of
from row_of_all_types import (
    ELEMENT_COLUMNS,
    FURTHER,
    FURTHER_COLUMNS,
    NESTED_COLUMNS,
    VECTOR,
    VECTOR_COLUMNS,
    element_batch,
    further_batch,
    nested_batch,
    vector_batch,
)

from cases import cases
from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.formats.compacted.row import decode_values, encode_values
from fluss_tiering.formats.keys import encode_keys
from fluss_tiering.formats.log.batch import ChangeType, LogCompression, encode_log_batch, read_header
from fluss_tiering.formats.log.decoding import decode_log_batch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column

BUCKETS_OF_1009 = {0: 366, 1: 578, 2: 578, 5: 143, 6: 462, 7: 698, 8: 774, 9: 945, 11: 557, 12: 213, 13: 734}
FURTHER_BUCKETS_OF_1009 = {3: 143, 4: 944, 5: 92, 6: 387, 7: 464, 8: 464, 9: 464}
NESTED_VALUE = bytes.fromhex(
    "01000001071803000000020000000100000000000000FFFFFFFF000000003801000000000000002800000010000000020000"
    "000000000061000000000000810C0000001800000062C3A920616E64206D6F72650000000064300000000200000000000000"
    "73686F727400008511000000180000006C6F6E676572207468616E20736576656E0000000000000002000000020000001800"
    "00001800000000000000000000000200000002000000010000000000008100000000000000003C00AC021302FEFFB79929FF"
    "FFFFFFFFFFFFFFFF01BF843D24100000000100000000000000D4FE0000000000000100000000000000010000000000000018"
    "020000000000000085FFFFFFFFFFFFFFE70300000000000028020000000200000009000000180000000000000000000000F9"
    "4EB1607ED0C993CB000000000000002802000000000000000000000018000000D00700002000000018FCFFFFFFFFFFFF0100"
    "000000000000"
)
ELEMENT_VALUE = bytes.fromhex(
    "0100000001300300000002000000020000002000000000000000000000000100000028000000000100000000000001000000"
    "000000001803000000040000000000C07F000000800000000000000000200300000002000000000000000000F87F00000000"
    "0000000000000000000000800D000100C0FF010000000000F8FF302200000000000000010000000100000100000100000100"
    "0001000001000001000001000001000001000001000001000030040000000200000000000000000000800000000000000000"
    "736576656E206287080000002800000065696768742062791802000000020000000001FF0000000083000000000000000010"
    "0200000002000000FF5B260500000000100300000002000000D4FE0000010000001802000000010000000000000000000000"
    "FFFFFFFFFFFFFFFF20020000000100000000000000000000003F420F0018000000FFFFFFFFFFFFFFFF3C1000000001000000"
    "00000000FFFFFFFF000000000100000000000000140000001000000008000000000000000000000000000000000000000000"
    "0000080000000000000000"
)
EMPTY_BATCH = bytes.fromhex(
    "2800000000000000240000000087D61200000000001F2B172801000000000000FFFFFFFFFFFFFFFFFFFFFFFF00000000"
)
COMMIT_TIMESTAMP = 1_234_567


def test_values_are_flusss() -> None:
    assert encode_values(vector_batch(), VECTOR_COLUMNS, 1).to_pylist() == [VECTOR]
    assert decode_values(pa.array([VECTOR]), VECTOR_COLUMNS, 1).equals(vector_batch())


def test_values_of_further_types_are_flusss() -> None:
    assert encode_values(further_batch(), FURTHER_COLUMNS, 1).to_pylist() == [FURTHER]
    assert decode_values(pa.array([FURTHER]), FURTHER_COLUMNS, 1).equals(further_batch())


def test_nested_values_are_flusss() -> None:
    assert encode_values(nested_batch(), NESTED_COLUMNS, 1).to_pylist() == [NESTED_VALUE]
    assert decode_values(pa.array([NESTED_VALUE]), NESTED_COLUMNS, 1).equals(nested_batch())


def test_elements_of_arrays_are_flusss() -> None:
    """Arrays have only one NaN, and rows have the one that was written. A row in an array is never in a slot."""
    assert encode_values(element_batch(), ELEMENT_COLUMNS, 1).to_pylist() == [ELEMENT_VALUE]
    read = decode_values(pa.array([ELEMENT_VALUE]), ELEMENT_COLUMNS, 1)
    assert encode_values(read, ELEMENT_COLUMNS, 1).to_pylist() == [ELEMENT_VALUE]
    assert repr(rows_of(read)) == repr(rows_of(element_batch()))


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 7])
def test_damaged_nested_values_are_corrupt_or_rows(step: int) -> None:
    """If any byte is changed, the result is a row of the table or an error."""
    for position in range(2, len(NESTED_VALUE)):
        damaged = bytearray(NESTED_VALUE)
        damaged[position] = (damaged[position] + step) % 256
        for stored in (bytes(damaged), NESTED_VALUE[:position]):
            try:
                decode_values(pa.array([stored]), NESTED_COLUMNS, 1).validate(full=True)
            except FlussTieringError as error:
                assert error.code is ErrorCode.CORRUPT_DATA  # noqa: PT017 - other errors are raised
            else:
                assert len(stored) == len(NESTED_VALUE)


def test_keys_are_flusss() -> None:
    assert encode_keys(vector_batch(), VECTOR_COLUMNS[:14]).to_pylist() == [VECTOR[4:]]
    assert encode_keys(further_batch(), FURTHER_COLUMNS[:10]).to_pylist() == [FURTHER[4:]]


@cases("index", BUCKETS_OF_1009)
def test_buckets_are_flusss(index: int) -> None:
    buckets = assign_buckets(vector_batch().column(index), VECTOR_COLUMNS[index].data_type, 1009)
    assert buckets.tolist() == [BUCKETS_OF_1009[index]]


@cases("index", FURTHER_BUCKETS_OF_1009)
def test_buckets_of_further_types_are_flusss(index: int) -> None:
    buckets = assign_buckets(further_batch().column(index), FURTHER_COLUMNS[index].data_type, 1009)
    assert buckets.tolist() == [FURTHER_BUCKETS_OF_1009[index]]


def last_is_x(row: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    last = arrow_schema(columns).field(len(columns) - 1)
    return row.set_column(len(columns) - 1, last, pa.array(["x"]).cast(last.type))


def nested_batch_with_all() -> pa.RecordBatch:
    last = arrow_schema(NESTED_COLUMNS).field(8)
    return nested_batch().set_column(8, last, pa.array([[1]], last.type))


@cases(
    ("name", "compression", "row"),
    [
        ("none", "NONE", last_is_x(vector_batch(), VECTOR_COLUMNS)),
        ("lz4", "LZ4_FRAME", last_is_x(vector_batch(), VECTOR_COLUMNS)),
        ("zstd", "ZSTD", last_is_x(vector_batch(), VECTOR_COLUMNS)),
        ("further-types", "NONE", last_is_x(further_batch(), FURTHER_COLUMNS)),
        ("nested-types", "NONE", nested_batch_with_all()),
    ],
)
def test_log_batches_of_fluss_are_read(name: str, compression: LogCompression, row: pa.RecordBatch) -> None:
    data = Path(__file__).with_name("data").joinpath(f"fluss-0.9.1-{name}.bin").read_bytes()
    header = read_header(memoryview(data), 0)
    assert header is not None
    assert (header.magic, header.size, header.record_count, header.next_offset) == (0, len(data), 3, 43)
    batch = decode_log_batch(memoryview(data), 0, row.schema)
    assert (batch.base_offset, batch.commit_timestamp) == (40, COMMIT_TIMESTAMP)
    kinds = np.array([ChangeType.INSERT, ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER], np.uint8)
    assert np.array_equal(batch.change_types, kinds)
    assert pa.Table.from_batches([batch.records]).equals(pa.Table.from_batches([row, row, row]))
    ours = encode_log_batch(
        40, COMMIT_TIMESTAMP, batch.records, schema_id=1, change_types=batch.change_types, compression=compression
    )
    start = header.header_size
    assert ours[48:51] == data[start : start + 3]
    assert ours[:8] + ours[13:21] + ours[25:48] == data[:8] + data[13:21] + data[start - 23 : start]


def test_a_batch_without_records_is_flusss() -> None:
    nothing = vector_batch().slice(0, 0)
    change_types = np.empty(0, np.uint8)
    assert (
        encode_log_batch(40, COMMIT_TIMESTAMP, nothing, schema_id=1, change_types=change_types, compression="ZSTD")
        == EMPTY_BATCH
    )
