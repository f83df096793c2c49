"""Rows are cut into parts by their bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_tiering.formats.grouping import parts_of


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
