"""Writes files as an older version did: with bounds of only some row groups, and decimals as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest

import fluss_tiering.lake.iceberg.parquet as writing
from fluss_tiering.lake.iceberg.metrics.collector import FileMetricsCollector


class _WithDecimalBytes(pq.ParquetWriter):
    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **{**options, "store_decimal_as_integer": False})


@contextmanager
def older_writer(*, narrow_bounds: bool = True, decimal_bytes: bool = False) -> Iterator[None]:
    """In the block, each batch becomes a row group, and files get the given defects."""
    add_bounds = FileMetricsCollector._add_bounds

    def of_some_row_groups(self, found, number, extremes) -> None:
        add_bounds(self, found, number, [each for each in extremes if each is not None])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writing, "_MAX_BUFFERED_ROWS", 1)
        if narrow_bounds:
            patched.setattr(FileMetricsCollector, "_find_long", lambda self, number, values: None)
            patched.setattr(FileMetricsCollector, "_add_bounds", of_some_row_groups)
        if decimal_bytes:
            patched.setattr(writing.pq, "ParquetWriter", _WithDecimalBytes)
        yield
