"""Position delete files of the format version 2, and deletion vectors in the form of the Iceberg specification."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import deletes_of, place_in, shared_delete_file

from fluss_tiering.lake.files import FileContent, LakeFile
from fluss_tiering.lake.iceberg.deletes import (
    PositionDeletes,
    position_files,
    present_deletes,
    write_position_deletes,
    write_vectors,
)
from fluss_tiering.lake.iceberg.deletes.position_files import OpenFile
from fluss_tiering.lake.iceberg.deletes.present import PresentDeletes
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.iceberg.java import jvm_of
from fluss_tiering.lake.object_store import path_of

PATH_ID, POSITION_ID = 2147483546, 2147483545
LONG = "file:/lake/" + "a long folder/" * 20


def rows_of(file: LakeFile) -> list[tuple[str, int]]:
    table = pq.read_table(path_of(file.location))
    return list(zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True))


def test_the_deletes_of_a_data_file_have_a_file_with_exact_bounds(tmp_path: Path) -> None:
    one, other = f"{LONG}a", f"{LONG}b"
    files = write_position_deletes(place_in(tmp_path, 7), deletes_of({other: [5, 2**40, 0, 5], one: [1]}))
    assert [rows_of(file) for file in files] == [[(one, 1)], [(other, 0), (other, 5), (other, 2**40)]]
    assert [file.referenced for file in files] == [(one,), (other,)]
    assert [file.location for file in files] == [
        f"file://{tmp_path}/day=mon/piece-7-positions-{number:05d}.parquet" for number in (0, 1)
    ]
    for file, path in zip(files, (one, other), strict=True):
        assert (file.content, file.bucket, file.partition_values) == (FileContent.POSITION_DELETES, 3, ("mon",))
        assert (file.vector, file.replaces) == (None, ())
        assert file.size_bytes == Path(path_of(file.location)).stat().st_size
        # Iceberg takes equal bounds for the one data file that is meant, so nothing may be cut off.
        assert file.metrics.lower_bounds[PATH_ID] == file.metrics.upper_bounds[PATH_ID] == path.encode()
    assert files[1].metrics.record_count == 3
    assert files[1].metrics.lower_bounds[POSITION_ID] == bytes(8)
    assert files[1].metrics.upper_bounds[POSITION_ID] == (2**40).to_bytes(8, "little")


def test_locations_that_parquet_keeps_no_bounds_of_have_bounds(tmp_path: Path) -> None:
    gone = {f"file:/{letter}/" + "é" * 3_000: [3, 1] for letter in "ba"}
    gone |= {f"file:/c/{number}": [0] for number in range(9)}
    (file,) = write_position_deletes(place_in(tmp_path), deletes_of(gone))
    assert rows_of(file) == [(location, position) for location in sorted(gone) for position in sorted(gone[location])]
    low, high = file.metrics.lower_bounds[PATH_ID].decode(), file.metrics.upper_bounds[PATH_ID].decode()
    assert low <= min(gone)
    assert max(gone) <= high
    assert min(gone).startswith(low)
    assert file.metrics.value_counts[PATH_ID] == 13


def test_the_columns_have_the_ids_of_the_spec(tmp_path: Path) -> None:
    (file,) = write_position_deletes(place_in(tmp_path), deletes_of({"a": [1]}))
    schema = pq.ParquetFile(path_of(file.location)).schema_arrow
    assert [(field.name, field.type, field.nullable) for field in schema] == [
        ("file_path", pa.string(), False),
        ("pos", pa.int64(), False),
    ]
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in schema]
    assert ids == [PATH_ID, POSITION_ID]


def test_each_file_is_in_the_partition_and_the_spec_of_its_data_files(tmp_path: Path) -> None:
    partitions = {"a": (None, (1,)), "b": (0, ("mon", 1)), "c": (None, (2,))}
    place = replace(place_in(tmp_path), partitions=partitions)
    gone = deletes_of({"a": [1], "b": [2], "c": [3]})
    present = dict.fromkeys(partitions, PresentDeletes())
    for files in (write_position_deletes(place, gone), write_vectors(place, gone, present)):
        assert {file.referenced: (file.spec_id, file.row_partition) for file in files} == {
            (data_file,): partition for data_file, partition in partitions.items()
        }
    assert {Path(file.location).suffix for file in files} == {".puffin"}


@pytest.mark.parametrize(("touched", "written"), [(1, 1), (8, 8), (9, 1), (20, 1)])
def test_many_data_files_with_few_deletes_share_a_file(tmp_path: Path, touched: int, written: int) -> None:
    # Code units of UTF-16 have another order than bytes.
    names = ["\U00010000", "\uffff", "z", "a b", "a#", "ä", *map(str, range(14))][:touched]
    gone = {name: range(number) for number, name in enumerate(names, start=1)}
    files = write_position_deletes(place_in(tmp_path), deletes_of(gone, others=["untouched"]))
    assert len(files) == written
    ordered = sorted(names, key=str.encode)
    assert [name for file in files for name in file.referenced] == ordered
    rows = [(name, position) for name in ordered for position in gone[name]]
    assert [row for file in files for row in rows_of(file)] == rows
    assert files[0].metrics.lower_bounds[PATH_ID] == ordered[0].encode()
    assert files[-1].metrics.upper_bounds[PATH_ID] == ordered[-1].encode()
    assert sum(file.metrics.record_count for file in files) == len(rows)


def test_a_data_file_with_many_deletes_has_a_file_of_its_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(position_files, "_FEW_POSITIONS", 5)
    monkeypatch.setattr(position_files, "_GROUP_ROWS", 7)
    gone = {name: range(3) for name in "abcdefghij"} | {"e": range(10)}
    alone, together = write_position_deletes(place_in(tmp_path), deletes_of(gone))
    assert rows_of(alone) == [("e", position) for position in range(10)]
    assert rows_of(together) == [(name, position) for name in "abcdfghij" for position in range(3)]
    footer = pq.ParquetFile(path_of(together.location)).metadata
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == [7, 7, 7, 6]


def test_a_file_takes_the_place_of_those_that_its_data_file_has(tmp_path: Path) -> None:
    of_a, _ = write_position_deletes(place_in(tmp_path, 1), deletes_of({"a": [1], "b": [7]}))
    place = place_in(tmp_path, 3)
    present = present_deletes(place, {"a": [of_a], "c": [], "d": []})
    files = write_position_deletes(place, deletes_of({"a": [3, 1], "c": [0], "d": [2], "e": [4]}), present)
    assert [rows_of(file) for file in files] == [[("a", 1), ("a", 3)], [("c", 0)], [("d", 2)], [("e", 4)]]
    assert [file.replaces for file in files] == [(of_a,), (), (), ()]


def test_a_shared_file_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    (of_a,) = write_position_deletes(place_in(tmp_path, 1), deletes_of({"a": [1]}))
    shared = shared_delete_file(place_in(tmp_path, 2), {name: [9] for name in "abc"})
    other = shared_delete_file(place_in(tmp_path, 3), {"x": [1], "y": [2]})
    place = place_in(tmp_path, 4)
    present = present_deletes(place, {"a": [of_a, shared], "b": [shared], "c": [shared], "x": [other], "y": [other]})
    (file,) = write_position_deletes(place, deletes_of({"a": [3], "d": [0]}), present)
    # What the old file deletes of data files that have no new deletes is kept, too.
    assert rows_of(file) == [("a", 1), ("a", 3), ("a", 9), ("b", 9), ("c", 9), ("d", 0)]
    assert file.referenced == ("a", "b", "c", "d")
    # A file that no data file with new deletes has stays as it is.
    assert file.replaces == (of_a, shared)


def test_a_shared_file_of_which_nothing_is_left_is_replaced_by_one_of_a_data_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(position_files, "_FEW_POSITIONS", 2)
    shared = shared_delete_file(place_in(tmp_path, 1), {"a": [1, 2], "gone": [1]})
    place = place_in(tmp_path, 2)
    (file,) = write_position_deletes(place, deletes_of({"a": [0]}), present_deletes(place, {"a": [shared]}))
    assert rows_of(file) == [("a", 0), ("a", 1), ("a", 2)]
    assert file.replaces == (shared,)


def test_a_large_file_stays_beside_the_new_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(position_files, "_FEW_POSITIONS", 2)
    (large,) = write_position_deletes(place_in(tmp_path, 1), deletes_of({"a": range(10, 20)}))
    (small,) = write_position_deletes(place_in(tmp_path, 2), deletes_of({"a": [0, 1]}))
    place = place_in(tmp_path, 3)
    present = present_deletes(place, {"a": [large, small]})
    (file,) = write_position_deletes(place, deletes_of({"a": [2, 3]}), present)
    assert rows_of(file) == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]
    assert file.replaces == (small,)
    (everything,) = write_position_deletes(place_in(tmp_path, 4), deletes_of({"a": range(20, 30)}), present)
    assert rows_of(everything) == [("a", position) for position in [0, 1, *range(10, 30)]]
    assert sorted(file.location for file in everything.replaces) == [large.location, small.location]


def test_no_deletes_are_no_file(tmp_path: Path) -> None:
    assert write_position_deletes(place_in(tmp_path), deletes_of({}, others=["a"])) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("locations", "files", "positions", "said"),
    [
        (["a", "b", "a"], [0], [0], "the data file a is named twice: expected each location once"),
        (["a"], [1], [0], "the file number 1 is too large: there are 1 locations"),
        (["a"], [-1], [0], "the file number -1 is negative: expected a number from 0 on"),
        (["a"], [0], [-5], "the position -5 is negative: expected a number from 0 on"),
        (["a"], [None], [0], "a file number is null: expected none"),
        (["a"], [0], [None], "a position is null: expected none"),
    ],
)
def test_deletes_that_name_no_row_are_refused(tmp_path: Path, locations, files, positions, said) -> None:
    deletes = PositionDeletes(locations, pa.array(files, pa.int32()), pa.array(positions, pa.int64()))
    with pytest.raises(ValueError, match=said):
        write_position_deletes(place_in(tmp_path), deletes)
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_is_deleted_if_writing_fails(tmp_path: Path, monkeypatch) -> None:
    opened = []

    def fail_at_third(self, rows) -> None:
        opened.append(self.location)
        if len(opened) == 3:
            raise OSError("the disk is full")
        write(self, rows)

    write = OpenFile.write
    monkeypatch.setattr(OpenFile, "write", fail_at_third)
    with pytest.raises(OSError, match="the disk is full"):
        write_position_deletes(place_in(tmp_path), deletes_of({"a": [1], "b": [1], "c": [1], "d": [1]}))
    assert len(opened) == 3
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


MAGIC = bytes.fromhex("d1d33964")
POSITIONS = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 300), st.integers(2**32 - 3, 2**32 + 3))


def vector_of(positions: Sequence[int]) -> DeletionVector:
    vector = DeletionVector()
    vector.add(np.asarray(positions, np.int64))
    return vector


def blob_around(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def test_an_empty_vector_is_the_count_of_no_bitmaps() -> None:
    assert DeletionVector().to_blob() == blob_around(MAGIC + bytes(8))
    assert len(DeletionVector.from_blob(blob_around(MAGIC + bytes(8)))) == 0


def test_bitmaps_are_by_the_upper_halves_of_positions() -> None:
    # Roaring's format: a cookie, the number of containers, for each its key and its cardinality less 1, its offset,
    # and then its values in 16 bits.
    low = struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 3, 9)
    high = struct.pack("<IIHHIH", 12346, 1, 2, 0, 16, 5)
    bitmaps = struct.pack("<QI", 2, 0) + low + struct.pack("<I", 7) + high
    positions = [9, 3, (7 << 32) + (2 << 16) + 5]
    assert vector_of(positions).to_blob() == blob_around(MAGIC + bitmaps)
    assert DeletionVector.from_blob(blob_around(MAGIC + bitmaps)).positions().tolist() == sorted(positions)


@given(st.lists(POSITIONS), st.lists(POSITIONS))
def test_a_vector_is_a_set_of_positions(some: list[int], more: list[int]) -> None:
    vector = vector_of(some)
    vector.update(vector_of(more))
    read = DeletionVector.from_blob(vector.to_blob())
    assert read.positions().tolist() == sorted({*some, *more})
    assert read.positions().dtype == np.int64
    assert len(read) == len({*some, *more})


def test_many_positions_in_a_row_take_a_few_bytes() -> None:
    vector = vector_of(range(0, 1_000_000, 2))
    vector.add(np.arange(1, 1_000_000, 2))
    assert len(vector.to_blob()) < 400


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(ValueError, match="the position -1 is negative"):
        vector_of([3, -1])


GOOD = vector_of([1, 2, 2**33]).to_blob()


@pytest.mark.parametrize(
    ("blob", "said"),
    [
        (b"", "has 0 bytes, which is too short"),
        (GOOD[:11], "has 11 bytes, which is too short"),
        (GOOD[:-1], f"says that it has {len(GOOD) - 8} bytes, and has {len(GOOD) - 9}"),
        (blob_around(b"\x00" + GOOD[5:-4]), "begins with 00d33964, expected d1d33964"),
        (GOOD[:20] + bytes([GOOD[20] ^ 1]) + GOOD[21:], "the checksum of its deletion vector is"),
        (blob_around(MAGIC), "holds no bitmap"),
        (blob_around(GOOD[4:-9]), "holds no bitmap"),
    ],
)
def test_a_damaged_blob_is_refused(blob: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DeletionVector.from_blob(blob)


@pytest.mark.parametrize(
    "positions",
    [[0], [3, 2**32 - 1, 2**32, 2**33 + 5, 2**36], range(100_000), range(0, 200_000, 2), [0, 2**31, 2**31 + 1]],
    ids=["one", "above 32 bits", "a run", "alternating", "31 bits"],
)
def test_iceberg_s_own_code_reads_and_writes_the_same(spark, positions) -> None:
    """Iceberg's `PositionDeleteIndex`, which Spark, Flink and Trino use."""
    jvm = jvm_of(spark)
    vector = vector_of(positions)
    index = jvm.org.apache.iceberg.deletes.PositionDeleteIndex.deserialize(vector.to_blob(), delete_file(jvm, vector))
    assert index.cardinality() == len(vector)
    assert all(index.isDeleted(position) for position in list(positions)[:20])
    assert not index.isDeleted(max(positions) + 1)
    read = DeletionVector.from_blob(_serialized(index))
    assert read.positions().tolist() == sorted(positions)


def _serialized(index) -> bytes:
    buffer = index.serialize()
    return bytes(buffer.array())[buffer.arrayOffset() : buffer.arrayOffset() + buffer.limit()]


def delete_file(jvm, vector: DeletionVector):
    described = {
        "spec-id": 0,
        "content": "POSITION_DELETES",
        "file-path": "file:/v.puffin",
        "file-format": "PUFFIN",
        "partition": {},
        "file-size-in-bytes": 1000,
        "record-count": len(vector),
        "referenced-data-file": "file:/d.parquet",
        "content-offset": 4,
        "content-size-in-bytes": len(vector.to_blob()),
    }
    node = jvm.org.apache.iceberg.util.JsonUtil.mapper().readTree(json.dumps(described))
    return jvm.org.apache.iceberg.ContentFileParser.fromJson(node, jvm.org.apache.iceberg.PartitionSpec.unpartitioned())
