"""The data files that executors write. These tests need no catalog."""

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


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 60_000, 300_000])
def test_columns_whose_values_repeat_have_dictionaries(tmp_path: Path, count: int) -> None:
    random = np.random.default_rng(1)
    columns = {
        "few": pa.array(random.integers(0, 20, count)),
        "some": pa.array(random.integers(0, count // 10, count)),
        "unlike": pa.array(random.random(count)),
        "text": pa.array([f"no. {number}" for number in range(count)]),
        "nothing": pa.nulls(count, pa.string()),
        "nested": pa.array([[number] for number in range(count)], pa.list_(pa.int64())),
    }
    rows = pa.record_batch(columns)
    system = {
        BUCKET_COLUMN: pa.int32(),
        OFFSET_COLUMN: pa.int64(),
        TIMESTAMP_COLUMN: pa.timestamp("us", "UTC"),
    }
    schema = pa.schema([*rows.schema, *(pa.field(name, kind) for name, kind in system.items())])
    piece = ParquetFileWriter(schema, None, ("zstd", None), 1 << 30, {}).open_piece(0, str(tmp_path / "piece"), 0)
    piece.write(rows, np.arange(count), np.zeros(count, np.int64))
    (file,) = piece.close()
    written = pq.ParquetFile(file.location)
    chunks = [written.metadata.row_group(0).column(number) for number in range(written.metadata.num_columns)]
    with_dictionary = {chunk.path_in_schema for chunk in chunks if "RLE_DICTIONARY" in chunk.encodings}
    assert with_dictionary == {"few", "some", "nothing", BUCKET_COLUMN, TIMESTAMP_COLUMN}
    assert written.read().select(list(columns)).equals(pa.table(columns))
