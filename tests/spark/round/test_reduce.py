"""The changes of a bucket are reduced to the last of each key, whatever does not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_tiering.formats.log.batch import ChangeType, LogBatch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath
from fluss_tiering.spark.round import reduce
from fluss_tiering.spark.round.reduce import Changes, Reducer

COLUMNS = (
    Column("id", DataType.parse("INT NOT NULL")),
    Column("name", DataType.parse("STRING NOT NULL")),
    Column("offset", DataType.parse("STRING")),
    Column("tags", DataType.parse("ARRAY<STRING>")),
)
TABLE = TableInfo(1, TablePath("db", "t"), 1, TableDescriptor(COLUMNS, ("id", "name"), ("id",), 1), 0, {})

Change = tuple[int, str, ChangeType]


def batches_of(changes: list[Change], sizes: Iterator[int]) -> Iterator[LogBatch]:
    """Yield the changes as log batches of these sizes. Their values tell them apart."""
    start = 0
    while start < len(changes):
        part = changes[start : start + next(sizes)]
        rows = [
            {"id": key, "name": name, "offset": f"at {start + number}", "tags": ["x"] * (start % 3) or None}
            for number, (key, name, _) in enumerate(part)
        ]
        records = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(COLUMNS))
        kinds = np.array([kind for *_, kind in part], np.uint8)
        yield LogBatch(100 + start, 1000 + start, kinds, records)
        start += len(part)


def expected_of(changes: list[Change]) -> dict[tuple[int, str], tuple[int, bool]]:
    """Return for each key the offset of its last change, and whether its row exists then."""
    return {
        (key, name): (100 + number, kind is not ChangeType.DELETE)
        for number, (key, name, kind) in enumerate(changes)
        if kind is not ChangeType.UPDATE_BEFORE
    }


def found_in(parts: Iterator[Changes]) -> dict[tuple[int, str], tuple[int, bool]]:
    found: dict[tuple[int, str], tuple[int, bool]] = {}
    for part in parts:
        rows = part.records.to_pylist()
        for row, offset, lives in zip(rows, part.offsets.tolist(), part.lives.tolist(), strict=True):
            key = row["id"], row["name"]
            assert key not in found
            assert row["offset"] == f"at {offset - 100}"
            found[key] = offset, lives
    return found


# D43
@settings(deadline=None, max_examples=60)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from("ab"), st.sampled_from(list(ChangeType)[1:])), max_size=300
    ),
    size=st.integers(1, 40),
    buffer_bytes=st.sampled_from([1, 100, 2000, 1 << 20]),
)
def test_any_changes_are_reduced_alike_in_memory_and_on_disk(changes, size, buffer_bytes):
    def sizes() -> Iterator[int]:
        while True:
            yield size

    assert found_in(Reducer(TABLE, buffer_bytes).reduced(batches_of(changes, sizes()))) == expected_of(changes)


# D43
def test_the_files_go_and_what_is_held_in_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    count, size, buffer_bytes = 400, 50_000, 4 << 20
    arrow_before, most = pa.total_allocated_bytes(), 0

    def batches() -> Iterator[LogBatch]:
        nonlocal most
        for number in range(2 * count):
            most = max(most, pa.total_allocated_bytes() - arrow_before)
            row = {"id": number % count, "name": "n", "offset": f"{number}".ljust(size), "tags": None}
            records = pa.RecordBatch.from_pylist([row], schema=arrow_schema(COLUMNS))
            yield LogBatch(number, 0, np.array([ChangeType.UPDATE_AFTER], np.uint8), records)

    found = []
    for part in Reducer(TABLE, buffer_bytes).reduced(batches()):
        most = max(most, pa.total_allocated_bytes() - arrow_before)
        found += part.offsets.tolist()

    assert sorted(found) == list(range(count, 2 * count))
    # The rows take 40 MB.
    assert most < 3 * buffer_bytes
    assert list(tmp_path.iterdir()) == []


# D43: a hot key does not need the disk
def test_a_hot_key_is_reduced_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "missing"))
    changes = [(number % 3, "hot", ChangeType.UPDATE_AFTER) for number in range(20_000)]

    assert found_in(Reducer(TABLE, 100_000).reduced(batches_of(changes, iter([500] * 40)))) == expected_of(changes)


# D43
def test_a_disk_that_takes_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "missing"))
    changes = [(number, "cold", ChangeType.INSERT) for number in range(20_000)]

    with pytest.raises(FlussTieringError, match="could not make a temporary folder") as refused:
        found_in(Reducer(TABLE, 100_000).reduced(batches_of(changes, iter([500] * 40))))
    assert refused.value.code is ErrorCode.STORAGE


# D43
@pytest.mark.parametrize("part_bytes", [1, 3000, 1 << 20])
def test_changes_come_in_parts_of_a_size_that_writers_can_hold(monkeypatch: pytest.MonkeyPatch, part_bytes: int):
    monkeypatch.setattr("fluss_tiering.spark.round.reduce._RUN_BYTES", part_bytes)
    changes = [(number % 700, "k", ChangeType.UPDATE_AFTER) for number in range(1000)]
    parts = list(Reducer(TABLE).reduced(batches_of(changes, iter([20] * 50))))
    assert found_in(iter(parts)) == expected_of(changes)
    offsets = [offset for part in parts for offset in part.offsets.tolist()]
    assert offsets == sorted(offsets), "in the order of the log"
    assert all(part.nbytes <= part_bytes or part.records.num_rows <= 20 for part in parts)
    if part_bytes == 1 << 20:
        assert len(parts) == 1, "writers take long for many small batches"


class FullDisk:
    """Writes a stream to a disk that is full at one moment."""

    def __init__(self, moment: str) -> None:
        self._moment = moment
        self._at("open")

    def _at(self, moment: str) -> None:
        if moment == self._moment:
            raise OSError(28, "No space left on device")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._at("write")

    def close(self) -> None:
        self._at("close")


# D43
@pytest.mark.parametrize("moment", ["open", "write", "close"])
def test_a_disk_that_fills_up_on_the_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    changes = [(number, "cold", ChangeType.INSERT) for number in range(20_000)]
    monkeypatch.setattr("pyarrow.ipc.new_stream", lambda *_, **__: FullDisk(moment))

    with pytest.raises(
        FlussTieringError, match=f"could not write to {tmp_path}/fluss-reduce-.*No space left on device"
    ) as refused:
        found_in(Reducer(TABLE, 100_000).reduced(batches_of(changes, iter([500] * 40))))
    assert refused.value.code is ErrorCode.STORAGE
    assert list(tmp_path.iterdir()) == []


# D43: files that are still too large are spread over more files, by other bits of the hash
def test_changes_are_spread_again_until_they_fit_or_the_hash_has_no_more_bits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reduce, "_FILES", 2)
    folders, open_ones = reduce.temporary_folder, 0
    depths: list[int] = []

    @contextmanager
    def counted(purpose: str) -> Iterator[Path]:
        nonlocal open_ones
        with folders(purpose) as folder:
            open_ones += 1
            depths.append(open_ones)
            yield folder
            open_ones -= 1

    monkeypatch.setattr(reduce, "temporary_folder", counted)
    changes = [(number, "cold", ChangeType.INSERT) for number in range(300)]
    found = list(Reducer(TABLE, 200).reduced(batches_of(changes, iter([100] * 3))))
    assert found_in(iter(found)) == expected_of(changes)
    assert max(depths) == 6
    # About half of the changes of a file go to each of its two files: 300, 150, 75, 37, 19, 9 and 5 of them.
    assert max(part.records.num_rows for part in found) < 20


def test_a_disk_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    changes = [(number, "cold", ChangeType.INSERT) for number in range(20_000)]

    def broken(path: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pyarrow.OSFile", broken)
    with pytest.raises(FlussTieringError, match=f"could not read {tmp_path}/.*Input/output error") as refused:
        found_in(Reducer(TABLE, 100_000).reduced(batches_of(changes, iter([500] * 40))))
    assert refused.value.code is ErrorCode.STORAGE


def test_a_batch_without_change_types_is_refused():
    batch = LogBatch(7, 0, None, pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}], schema=arrow_schema(COLUMNS)))

    with pytest.raises(FlussTieringError, match=r"batch at offset 7 .* has no change types") as refused:
        list(Reducer(TABLE).reduced([batch]))
    assert refused.value.code is ErrorCode.CORRUPT_DATA
