"""Arrow IPC streams that an untrusted sender may make, and rows that are cut into parts by their bytes."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from fluss_tiering.formats import ipc
from fluss_tiering.formats.grouping import parts_of
from fluss_tiering.formats.ipc import rows_from_ipc
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

ROWS = pa.table({"id": [1, 2, None], "name": pa.array(["a", "b", "a"]).dictionary_encode()})


def stream(rows: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=2)
    return sink.getvalue().to_pybytes()


def refusal(arrow_ipc: bytes) -> FlussTieringError:
    with pytest.raises(FlussTieringError) as refused:
        rows_from_ipc(arrow_ipc)
    return refused.value


def test_rows_come_back_as_they_were_sent() -> None:
    assert rows_from_ipc(stream(ROWS)) == ROWS
    assert rows_from_ipc(stream(ROWS.slice(0, 0))) == ROWS.slice(0, 0)


@cases("codec", ["zstd", "lz4"])
@cases("column", ["id", "name"])
def test_compressed_streams_are_refused_before_they_expand(codec: str, column: str) -> None:
    arrow_ipc = stream(ROWS.select([column]), pa.ipc.IpcWriteOptions(compression=codec))
    error = refusal(arrow_ipc)
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "compressed buffers: expected none" in error.message


def test_a_small_stream_of_gigabytes_takes_no_memory() -> None:
    zeros = pa.table({"id": pa.Array.from_buffers(pa.int64(), 1 << 23, [None, pa.py_buffer(bytes(1 << 26))])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, zeros.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(zeros)
    del zeros
    before = pa.total_allocated_bytes()
    assert refusal(sink.getvalue().to_pybytes()).code is ErrorCode.INVALID_REQUEST
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_streams_of_a_former_version_are_refused() -> None:  # they may say in another place that they are compressed
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    error = refusal(stream(ROWS, options))
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "expected metadata version 5" in error.message


@pytest.mark.parametrize("rows", [pa.table({"id": range(100)}), pa.table({"id": pa.nulls(1000)})])
def test_rows_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch, rows: pa.Table) -> None:
    monkeypatch.setattr(ipc, "MAX_ROWS_BYTES", 799)
    error = refusal(stream(rows))
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "more than 799 bytes" in error.message


@pytest.mark.parametrize(
    "values", [[1], [{"zz\u00ff": 1}], [[{"zz\u00ff": 1}]]], ids=["column", "field of a struct", "struct in a list"]
)
def test_a_name_that_is_not_utf8_is_refused(values: list) -> None:
    name = "zz\u00ff" if values == [1] else "a"
    arrow_ipc = stream(pa.table({name: values})).replace("\u00ff".encode(), b"\xff\xfe")
    error = refusal(arrow_ipc)
    assert error.code is ErrorCode.INVALID_ROWS
    assert "names in UTF-8" in error.message


def test_a_value_that_does_not_fit_its_type_is_named_with_its_column() -> None:
    digits = pa.array([1234567], pa.int64()).cast(pa.decimal128(19, 0)).buffers()
    error = refusal(stream(pa.table({"price": pa.Array.from_buffers(pa.decimal128(5, 2), 1, digits)})))
    assert error.code is ErrorCode.INVALID_ROWS
    assert "column 'price' has a value that its type decimal128(5, 2) cannot have" in error.message


@cases("position", range(0, 600, 7))
def test_damaged_bytes_are_rows_or_refused(position: int) -> None:
    damaged = bytearray(stream(ROWS))
    damaged[position] ^= 0xFF
    # Another error, or a crash of the process, is a failure.
    with suppress(FlussTieringError):
        assert rows_from_ipc(bytes(damaged)).num_columns == ROWS.num_columns


def rows_of(sizes: list[int]) -> pa.RecordBatch:
    return pa.record_batch([list(range(len(sizes))), ["x" * size for size in sizes]], names=["id", "text"])


# D43
@settings(deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 20), st.just(5_000)), max_size=200),
    max_bytes=st.integers(1, 20_000),
    max_rows=st.one_of(st.none(), st.integers(1, 50)),
)
def test_parts_hold_all_rows_in_order_and_are_bounded(sizes, max_bytes, max_rows):
    rows = rows_of(sizes)

    parts = list(parts_of(rows, max_bytes, max_rows))

    assert pa.Table.from_batches(parts, rows.schema).column("id").to_pylist() == list(range(len(sizes)))
    for part in parts:
        assert 0 < part.num_rows <= (max_rows or len(sizes))
        assert part.num_rows == 1 or part.nbytes <= 2 * max_bytes


# D43: 700 rows of 1 MB among a million small ones have the average size of a small row
@pytest.mark.parametrize("position", [0, 500, 990])
def test_large_rows_among_small_ones_do_not_come_together(position: int):
    sizes = [10] * position + [100_000] * 10 + [10] * (990 - position)

    assert max(part.nbytes for part in parts_of(rows_of(sizes), 150_000)) <= 300_000
