"""Bloom filters are written as Iceberg's own properties say, and readers that are not ours use them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from lake_support import Lake
from written_files import SYSTEM

import fluss_tiering.lake.iceberg.parquet as writing
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.lake.iceberg.pruning.bloom_filters import BloomFilters, bloom_filters
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

ENABLED = "write.parquet.bloom-filter-enabled.column."
MAX_BYTES = "write.parquet.bloom-filter-max-bytes"
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "s": pa.string(),
        "f": pa.float64(),
        "b": pa.bool_(),
        "y": pa.binary(),
        "r": pa.struct({"x": pa.int32()}),
        "l": pa.list_(pa.int32()),
    }
)


def write(folder: Path, rows: pa.RecordBatch, filters: BloomFilters, sorted_by: tuple[str, ...] = ()) -> str:
    schema = pa.schema([*rows.schema, *SYSTEM])
    settings = ParquetFileWriter(schema, None, ("zstd", None), 1 << 30, {}, sorted_by=sorted_by, bloom_filters=filters)
    piece = settings.open_piece(0, str(folder / "piece"), 0)
    stamps = np.arange(rows.num_rows)
    piece.write(rows, stamps, stamps)
    (file,) = piece.close()
    return file.location


def excluded(location: str, column: str, value: Any) -> list[bool]:
    """Return for each row group whether DuckDB skips it by its bloom filter."""
    query = f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{location}', '{column}', {value})"
    return [each for (each,) in duckdb.execute(query).fetchall()]


def sizes(location: str) -> dict[str, int | None]:
    """Return the size of the bloom filter of each column in the first row group."""
    query = "SELECT path_in_schema, bloom_filter_length FROM parquet_metadata(?) WHERE row_group_id = 0"
    return dict(duckdb.execute(query, [location]).fetchall())


def test_only_the_named_columns_have_filters(tmp_path: Path) -> None:
    rows = pa.record_batch({"id": np.arange(0, 2000, 2), "s": [f"text {n}" for n in range(1000)]})
    properties = {f"{ENABLED}s": "true", f"{ENABLED}id": "false"}
    location = write(tmp_path, rows, bloom_filters("t", rows.schema, properties))

    found = sizes(location)
    assert [name for name, size in found.items() if size] == ["s"]
    assert excluded(location, "s", "'text 7'") == [False]
    absent = [excluded(location, "s", f"'text {number}'") for number in range(1000, 2000)]
    # One in a hundred is not noticed, as `write.parquet.bloom-filter-fpp.column.s` says by default.
    assert absent.count([True]) > 950


def test_each_row_group_of_a_sorted_file_has_a_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_SORTED_GROUP_ROWS", 100)
    rows = pa.record_batch({"k": np.random.default_rng(1).permutation(300)})
    location = write(tmp_path, rows, bloom_filters("t", rows.schema, {f"{ENABLED}k": "true"}), ("k",))

    assert excluded(location, "k", 150) == [True, False, True]


@pytest.mark.parametrize("largest", [32, 1000, 4096])
def test_a_filter_is_not_larger_than_the_property_says(tmp_path: Path, largest: int) -> None:
    rows = pa.record_batch({"id": np.arange(100_000)})
    properties = {f"{ENABLED}id": "true", MAX_BYTES: str(largest)}
    size = sizes(write(tmp_path, rows, bloom_filters("t", rows.schema, properties)))["id"]

    # Before the bits there is a header of some 15 bytes.
    assert size is not None
    assert largest // 2 < size - 15 <= largest + 1


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("nothing", "is no column of it that holds values"),
        ("r", "is no column of it that holds values"),
        ("l", "lies in an ARRAY or a MAP"),
        ("b", "has two values only"),
        ("f", "is a FLOAT or a DOUBLE, whose equal values 0.0 and -0.0"),
        ("y", "is a BINARY or a BYTES, of which DuckDB up to 1.5 misses rows"),
    ],
)
def test_a_column_that_can_have_no_filter_is_told(caplog: pytest.LogCaptureFixture, column: str, said: str) -> None:
    with caplog.at_level(logging.WARNING):
        found = bloom_filters("lake.db.t", SCHEMA, {f"{ENABLED}{column}": "true", f"{ENABLED}r.x": "true"})

    assert list(found.columns) == ["r.x"]
    (message,) = caplog.messages
    assert message.startswith(f"the lake table lake.db.t gets no bloom filter of {column}, which {said}")
    assert message.endswith(f"remove the property {ENABLED}{column}")


def test_a_pyarrow_without_bloom_filters_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fluss_tiering.lake.iceberg.pruning.bloom_filters._OPTION", "not there")
    with caplog.at_level(logging.WARNING):
        filters = bloom_filters("lake.db.t", SCHEMA, {f"{ENABLED}id": "true"})

    (message,) = caplog.messages
    assert message.startswith(f"the lake table lake.db.t gets no bloom filters, since pyarrow {pa.__version__} cannot")
    assert sizes(write(tmp_path, pa.record_batch({"id": [1]}), filters))["id"] is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (MAX_BYTES, "31"),
        (MAX_BYTES, "1 MB"),
        ("write.parquet.bloom-filter-fpp.column.id", "1"),
        ("write.parquet.bloom-filter-fpp.column.id", "0"),
        ("write.parquet.bloom-filter-fpp.column.id", "low"),
        ("write.parquet.bloom-filter-ndv.column.id", "0"),
        ("write.parquet.bloom-filter-ndv.column.id", "-1"),
    ],
)
def test_a_value_by_which_no_filter_can_be_written_is_refused(key: str, value: str) -> None:
    with pytest.raises(FlussTieringError, match=f"the property {key} of the lake table t is '{value}': expected") as at:
        bloom_filters("t", SCHEMA, {f"{ENABLED}id": "true", key: value})
    assert at.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_the_properties_of_a_lake_table_reach_its_files(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path, {"k": "BIGINT NOT NULL", "v": "STRING"}, ("k",), {f"{ENABLED}k": "true"})
    (file,) = lake.commit(lake.batch([{"k": number, "v": "x"} for number in range(100)]))
    _, deletes = lake.commit(lake.batch([{"k": 1, "v": "x"}]), upsert=True)

    assert [name for name, size in sizes(file.location.removeprefix("file:")).items() if size] == ["k"]
    assert [name for name, size in sizes(deletes.location.removeprefix("file:")).items() if size] == []
