"""Files with one column, written in row groups of any values, for tests of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import fluss_tiering.lake.iceberg.parquet as writing
from fluss_tiering.lake.files import FileMetrics, LakeFile
from fluss_tiering.lake.iceberg.metrics.modes import MetricsMode
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.model.table import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN

SYSTEM = (
    pa.field(BUCKET_COLUMN, pa.int32()),
    pa.field(OFFSET_COLUMN, pa.int64()),
    pa.field(TIMESTAMP_COLUMN, pa.timestamp("us", "UTC")),
)
FULL_RANGE = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.time64("us"): st.integers(0, 86_399_999_999),
    pa.timestamp("us"): st.integers(-(2**63), 2**63 - 1),
    pa.timestamp("us", "UTC"): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1),
    pa.decimal128(18, 0): st.integers(-(10**18) + 1, 10**18 - 1),
    pa.decimal128(38, 10): st.integers(-(10**38) + 1, 10**38 - 1),
}
EDGES = st.sampled_from(["\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "\x00", "a", "ä"])
TEXT = st.one_of(st.text(EDGES, max_size=20), st.builds(lambda text, n: text * n, EDGES, st.integers(1000, 5000)))
BINARY = st.one_of(st.binary(max_size=20), st.binary(min_size=1, max_size=1).map(lambda byte: byte * 4100))


def write_groups(folder: Path, kind: pa.DataType, groups: Sequence[pa.Array], mode: MetricsMode) -> Sequence[LakeFile]:
    """Write a column with the id 1 in row groups, and return the files: one, unless there are NaNs."""
    schema = pa.schema([pa.field("c", kind, metadata={"PARQUET:field_id": "1"}), *SYSTEM])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writing, "_MAX_BUFFERED_ROWS", 1)
        settings = ParquetFileWriter(schema, None, ("none", None), 1 << 40, {}, {1: mode})
        piece = settings.open_piece(0, str(folder / "piece"), 0)
        for group in groups:
            stamps = np.zeros(len(group), np.int64)
            piece.write(pa.record_batch([group], names=["c"]), stamps, stamps)
        return piece.close()


def files_of(folder: Path, kind: pa.DataType, groups: Sequence[pa.Array], mode: MetricsMode) -> list[FileMetrics]:
    return [file.metrics for file in write_groups(folder, kind, groups, mode)]


def metrics_of(folder: Path, kind: pa.DataType, groups: Sequence[pa.Array], mode: MetricsMode) -> FileMetrics:
    (metrics,) = files_of(folder, kind, groups, mode)
    return metrics


def array_of(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return raw values, for example microseconds or unscaled numbers, as an array."""
    if pa.types.is_decimal(kind):
        sizes = [None if value is None else value.to_bytes(16, "little", signed=True) for value in values]
        data = b"".join(size or bytes(16) for size in sizes)
        valid = np.packbits([value is not None for value in values], bitorder="little").tobytes()
        return pa.Array.from_buffers(kind, len(values), [pa.py_buffer(valid), pa.py_buffer(data)])
    plain = {32: pa.int32(), 64: pa.int64()}
    if pa.types.is_temporal(kind):
        return pa.array(values, plain[kind.bit_width]).view(kind)
    return pa.array(values, kind)


def groups_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
    return st.lists(st.lists(st.one_of(st.none(), values), min_size=1, max_size=5), min_size=1, max_size=4)
