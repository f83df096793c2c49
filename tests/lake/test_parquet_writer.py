"""What the executor's side puts into data files; no catalog is needed for that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.model.table import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("with_nulls", [False, True])
def test_nanoseconds_are_floored_to_microseconds_before_the_epoch_too(
    tmp_path: Path, zone: str | None, with_nulls: bool
) -> None:
    nanos = [-1, -1001, -1000, 0, 999, 1000, -(2**63) + 1]
    micros = [-1, -2, -1, 0, 0, 1, -9223372036854776]
    schema = pa.schema(
        {
            "t": pa.timestamp("us", zone),
            BUCKET_COLUMN: pa.int32(),
            OFFSET_COLUMN: pa.int64(),
            TIMESTAMP_COLUMN: pa.timestamp("us", "UTC"),
        }
    )
    values = pa.array([*nanos, None] if with_nulls else nanos, pa.timestamp("ns"))
    count = len(values)
    piece = ParquetFileWriter(schema, None, ("zstd", None), 1 << 20, {}).open_piece(0, str(tmp_path / "piece"), 0)
    # A slice, since a batch read from a log is one.
    rows = pa.record_batch([pa.concat_arrays([values[:1], values])], names=["t"]).slice(1)
    piece.write(rows, np.arange(count), np.zeros(count, np.int64))
    (file,) = piece.close()
    written = pq.read_table(file.location).column("t")
    assert written.cast(pa.int64()).to_pylist() == ([*micros, None] if with_nulls else micros)
