"""Rows of a primary-key table are sorted by key, and a file claims the table's sort order only if it has it."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake_support import Lake
from written_files import SYSTEM

import fluss_tiering.lake.iceberg.parquet as writing
from fluss_tiering.lake.iceberg.parquet import FilePlace, ParquetFileWriter, ParquetPieceWriter
from fluss_tiering.lake.iceberg.pruning.row_order import key_order, sorted_groups

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "small": (pa.int64(), st.integers(-3, 3)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "zoned": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "decimal": (pa.decimal128(18, 2), st.decimals(Decimal(-(10**16)) + 1, Decimal(10**16) - 1, places=2)),
    "long decimal": (pa.decimal128(38, 2), st.decimals(-(10**30), 10**30, places=2)),
    "text": (pa.string(), st.text(st.sampled_from("ab\x00\ud7ff\ue000\U00010000"), max_size=12)),
    "with prefix": (pa.string(), st.integers(0, 10**12).map(lambda number: f"order-{number:012d}")),
    "bytes": (pa.binary(), st.binary(max_size=12)),
}


def as_model(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


@given(data=st.data(), names=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3), cut=st.integers(1, 5))
def test_keys_of_any_types_are_put_in_order(data: st.DataObject, names: list[str], cut: int) -> None:
    kinds = [KINDS[name] for name in names]
    found = data.draw(st.lists(st.tuples(*(values for _, values in kinds)), max_size=30, unique=True))
    columns = {str(place): [row[place] for row in found] for place in range(len(kinds))}
    schema = pa.schema([pa.field(str(place), kind) for place, (kind, _) in enumerate(kinds)])
    whole = pa.Table.from_pydict(columns, schema=schema)
    # Slices, as batches of a log are, and more than one chunk.
    rows = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])

    order = key_order(rows, rows.schema.names)

    places = range(len(found)) if order is None else order.tolist()
    assert sorted(places) == list(range(len(found)))
    keys = [tuple(as_model(value) for value in found[place]) for place in places]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    "values",
    [
        # Only bytes behind those that make the number are different, or zeros.
        ["order-00000001-b", "order-00000001-a", "order-2", "order"],
        ["a\0\0", "a", "a\0", ""],
        ["same prefix, 12345678", "same prefix, 123456789", "same prefix, 12345678\0"],
        [Decimal(10**18 - 1), Decimal(-(10**18) + 1), Decimal(0)],
    ],
    ids=["long", "zeros", "prefix", "decimals"],
)
@pytest.mark.parametrize("places", list(itertools.permutations(range(3))))
def test_keys_that_begin_alike_are_put_in_order(values: list[Any], places: tuple[int, ...]) -> None:
    rows = pa.table({"k": [*[values[place] for place in places], *values[3:]]})
    order = key_order(rows, ["k"])
    found = rows if order is None else rows.take(pa.array(order))
    assert found.column("k").to_pylist() == sorted(values, key=as_model)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(("count", "groups"), [(1, 1), (49, 1), (50, 1), (51, 2), (100, 2), (101, 3), (150, 3)])
def test_no_group_has_more_rows_than_the_limit(count: int, groups: int, in_order: bool) -> None:
    keys = np.arange(count) if in_order else np.random.default_rng(count).permutation(count)
    batches = [pa.record_batch({"k": part}) for part in np.array_split(keys, 3)]
    found = list(sorted_groups(batches, ["k"], most_rows=50, most_bytes=1 << 30))
    assert [key for group in found for key in group.column("k").to_pylist()] == list(range(count))
    sizes = [group.num_rows for group in found]
    assert len(sizes) == groups
    assert max(sizes) <= 50
    assert max(sizes) - min(sizes) <= 1
    assert batches == []


def test_rows_in_order_are_left_as_they_are() -> None:
    for values in ([1, 2, 3], ["a", "b", "ba"], [1.0, 2.0, float("nan")]):
        assert key_order(pa.table({"k": values}), ["k"]) is None


def written(
    folder: Path, batches: list[pa.RecordBatch], key: tuple[str, ...]
) -> tuple[Any, list[tuple[str, list[int], int]]]:
    schema = pa.schema([*batches[0].schema, *SYSTEM])
    heard: list[tuple[str, list[int], int]] = []
    settings = ParquetFileWriter(schema, None, ("zstd", None), 1 << 30, {}, sorted_by=key)
    piece = ParquetPieceWriter(
        settings,
        FilePlace(0, ()),
        str(folder / "piece"),
        lambda location, rows, first: heard.append((location, rows.column("k").to_pylist(), first)),
    )
    offset = 0
    for batch in batches:
        offsets = np.arange(offset, offset + batch.num_rows)
        piece.write(batch, offsets, offsets)
        offset += batch.num_rows
    (file,) = piece.close()
    return file, heard


def test_each_row_group_has_keys_of_its_own_and_its_positions_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_SORTED_GROUP_ROWS", 100)
    keys = np.random.default_rng(1).permutation(1000)
    batches = [pa.record_batch({"k": part, "v": part * 10}) for part in np.array_split(keys, 7)]

    file, heard = written(tmp_path, batches, ("k",))

    rows = pq.read_table(file.location)
    assert rows.column("k").to_pylist() == list(range(1000))
    assert rows.column("v").to_pylist() == list(range(0, 10_000, 10))
    # Each row keeps its own log offset.
    assert keys[rows.column("__offset").to_numpy()].tolist() == list(range(1000))
    assert [(found, first) for _, found, first in heard] == [
        (list(range(first, first + 100)), first) for first in range(0, 1000, 100)
    ]
    assert groups_with(file.location, 537) == 1
    assert len(file.metrics.split_offsets) == 10


def test_rows_of_unlike_sizes_are_in_row_groups_of_about_the_same_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_SORTED_GROUP_BYTES", 1 << 20)
    keys = np.random.default_rng(1).permutation(2000)
    values = pa.array([np.random.default_rng(key).bytes(100_000 if key >= 1960 else 10) for key in keys.tolist()])

    file, _ = written(tmp_path, [pa.record_batch({"k": keys, "v": values})], ("k",))

    groups = pq.ParquetFile(file.location)
    sizes = [groups.read_row_group(number).nbytes for number in range(groups.num_row_groups)]
    assert len(sizes) >= 4
    assert max(sizes) < 1.3 * (1 << 20)


def groups_with(location: str, key: int) -> int:
    """Return how many row groups Arrow's reader would look into for a key."""
    (fragment,) = ds.dataset(location).get_fragments()
    return len(fragment.split_by_row_group(pc.field("k") == key))


def test_pages_have_an_index(tmp_path: Path) -> None:
    file, _ = written(tmp_path, [pa.record_batch({"k": np.arange(10)})], ())

    chunk = pq.read_metadata(file.location).row_group(0).column(0)
    assert chunk.has_column_index
    assert chunk.has_offset_index


def test_no_file_claims_the_sort_order_of_the_lake_table(spark: Any, tmp_path: Path) -> None:
    # ClickHouse does not sort rows of files with such a claim, although one file does not continue another.
    lake = Lake(spark, tmp_path / "log", {"k": "INT NOT NULL", "v": "STRING"})
    for first in (0, 3, 6):
        lake.commit(lake.batch([{"k": first + number, "v": "x"} for number in range(3)]))
    rows = spark.sql(f"SELECT sort_order_id FROM {lake.name}.db.t.files WHERE content = 0").collect()
    # 0 is Iceberg's unsorted order.
    assert [row.sort_order_id or 0 for row in rows] == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("key", [(), ("k",)])
@pytest.mark.parametrize("target", [2 << 20, 8 << 20])
def test_files_are_about_as_large_as_the_target(tmp_path: Path, key: tuple[str, ...], target: int) -> None:
    random = np.random.default_rng(1)
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.binary()), *SYSTEM])
    settings = ParquetFileWriter(schema, None, ("zstd", None), target, {}, sorted_by=key)
    piece = settings.open_piece(0, str(tmp_path / "piece"), 0)
    offsets = pa.py_buffer(np.arange(0, 1_000_001, 100, dtype=np.int32))
    for _ in range(40):
        values = pa.BinaryArray.from_buffers(
            pa.binary(), 10_000, [None, offsets, pa.py_buffer(random.bytes(1_000_000))]
        )
        stamps = np.zeros(10_000, np.int64)
        piece.write(pa.record_batch({"k": random.integers(0, 2**62, 10_000), "v": values}), stamps, stamps)
    sizes = [file.size_bytes for file in piece.close()]

    assert sum(sizes) > 38 << 20
    assert all(target <= size < 3.2 * target for size in sizes[:-1])
    assert sizes[-1] < 3.2 * target
