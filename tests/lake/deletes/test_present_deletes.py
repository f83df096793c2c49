"""What executors read of live delete files; and those that are missing, damaged or of another format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import deletes_of, place_in, shared_delete_file

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile
from fluss_tiering.lake.iceberg.deletes import (
    PresentDeletes,
    present,
    present_deletes,
    write_position_deletes,
    write_vectors,
)
from fluss_tiering.lake.iceberg.deletes.puffin import PuffinWriter
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector, union_of
from fluss_tiering.lake.object_store import ExpiredCredentialsError, path_of
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

REMEDY = "restore it from a backup, or from an older version if its store keeps versions"


def path(file: LakeFile) -> Path:
    return Path(path_of(file.location))


def vectors_in(folder: Path) -> list[LakeFile]:
    """Return two vectors in one Puffin file, as Iceberg's own writers write them."""
    place = place_in(folder)
    puffin = PuffinWriter(f"{place.prefix}-both.puffin", place.open())
    places = {}
    for name, deleted in (("a", [1, 2**33]), ("b", range(1000))):
        vector = DeletionVector()
        vector.add(np.array(deleted))
        places[name] = (puffin.write(name, vector), FileMetrics(len(vector)))
    size = puffin.close()
    return [
        LakeFile(FileContent.POSITION_DELETES, 0, puffin.location, size, metrics, referenced=(name,), vector=where)
        for name, (where, metrics) in places.items()
    ]


def test_each_vector_has_a_puffin_file_of_its_own(tmp_path: Path) -> None:
    """With two in one file, DuckDB 1.5.5 reads wrong rows."""
    none = {name: PresentDeletes() for name in "ab"}
    files = write_vectors(place_in(tmp_path), deletes_of({"a": [1], "b": range(1000)}), none)
    assert len({file.location for file in files}) == len(files) == 2
    assert {path(file) for file in files} == set(path(files[0]).parent.iterdir())


def positions(found: PresentDeletes) -> tuple[list[int], list[int]]:
    own = union_of(positions for _, positions in found.own)
    return own.positions().tolist(), found.shared.positions().tolist()


def test_all_delete_files_of_a_data_file_alone_can_be_replaced(tmp_path: Path) -> None:
    files = [
        file
        for attempt, deleted in enumerate(([1, 5], [2]))
        for file in write_position_deletes(place_in(tmp_path, attempt), deletes_of({"a": deleted}))
    ]
    assert len({file.location for file in files}) == 2
    (found,) = present_deletes(place_in(tmp_path), {"a": files}).values()
    assert positions(found) == ([1, 2, 5], [])
    assert found.files == tuple(files)


def test_a_vector_is_read_from_its_place(tmp_path: Path) -> None:
    of_a, of_b = vectors_in(tmp_path)
    assert of_a.location == of_b.location
    found = present_deletes(place_in(tmp_path), {"a": [of_a], "b": [of_b], "c": []})
    assert positions(found["a"]) == ([1, 2**33], [])
    assert positions(found["b"]) == (list(range(1000)), [])
    assert [each.files for each in found.values()] == [(of_a,), (of_b,), ()]


def test_a_new_vector_holds_what_is_deleted_already(tmp_path: Path) -> None:
    (of_a, _), place = vectors_in(tmp_path), place_in(tmp_path, 1)
    shared = [shared_delete_file(place, {name: [7] for name in "abcdefghi"})]
    present_a = present_deletes(place, {"a": [of_a, *shared]})
    assert positions(present_a["a"]) == ([1, 2**33], [7])
    (vector,) = write_vectors(place, deletes_of({"a": [0, 1]}), present_a)
    assert (vector.referenced, vector.replaces, vector.metrics) == (("a",), (of_a,), FileMetrics(4))
    assert positions(present_deletes(place, {"a": [vector]})["a"]) == ([0, 1, 7, 2**33], [])
    # Nothing was added to what was present.
    assert positions(present_a["a"]) == ([1, 2**33], [7])


def test_a_vector_of_a_data_file_whose_deletes_were_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="what is deleted of the data file b was not read: expected it in `present`"):
        write_vectors(place_in(tmp_path), deletes_of({"a": [1], "b": [1]}), {"a": PresentDeletes()})
    assert list(tmp_path.iterdir()) == []


def test_no_deletes_are_no_puffin_file(tmp_path: Path) -> None:
    assert write_vectors(place_in(tmp_path), deletes_of({}, others=["a"]), {}) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["write", "close"])
def test_a_puffin_file_that_cannot_be_finished_is_deleted(tmp_path: Path, monkeypatch, step: str) -> None:
    def fail(*_) -> None:
        assert [each for each in tmp_path.rglob("*") if each.is_file()]
        raise OSError("the disk is full")

    monkeypatch.setattr(PuffinWriter, step, fail)
    none = {name: PresentDeletes() for name in "ab"}
    with pytest.raises(OSError, match="the disk is full"):
        write_vectors(place_in(tmp_path), deletes_of({"a": [1], "b": [1]}), none)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_a_file_of_many_data_files_is_read_once_for_those_that_are_asked_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(present, "_BATCH_ROWS", 5)
    gone = {name: range(number * 3) for number, name in enumerate("abcdefghij", start=1)}
    shared = shared_delete_file(place_in(tmp_path), gone)
    opened = []
    read = present.open_parquet
    monkeypatch.setattr(present, "open_parquet", lambda *args, **how: opened.append(1) or read(*args, **how))
    found = present_deletes(place_in(tmp_path), {"c": [shared], "j": [shared], "x": [shared]})
    assert {name: positions(each) for name, each in found.items()} == {
        "c": ([], list(range(9))),
        "j": ([], list(range(30))),
        "x": ([], []),
    }
    assert [each.files for each in found.values()] == [(), (), ()]
    assert len(opened) == 1


def test_a_file_of_another_writer_may_be_in_any_order(tmp_path: Path) -> None:
    rows = [("b", 3), ("a", 9), ("b", 1), ("a", 2), ("a", 2)]
    table = pa.table({"file_path": [one for one, _ in rows], "pos": [n for _, n in rows], "row": [None] * 5})
    pq.write_table(table, tmp_path / "theirs.parquet")
    theirs = LakeFile(FileContent.POSITION_DELETES, 3, f"file://{tmp_path}/theirs.parquet", 1, FileMetrics(5))
    found = present_deletes(place_in(tmp_path), {"a": [theirs], "b": [replace(theirs, referenced=("b",))]})
    assert positions(found["a"]) == ([], [2, 9])


def damaged_after(number: int) -> Callable[[LakeFile], None]:
    def damage(file: LakeFile) -> None:
        content = bytearray(path(file).read_bytes())
        content[number] ^= 0xFF
        path(file).write_bytes(content)

    return damage


def cut(file: LakeFile) -> None:
    path(file).write_bytes(path(file).read_bytes()[:30])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: path(file).unlink(), "missing: {}: expected the Puffin file that the lake table refers to"),
        (cut, "damaged: {}: it has 30 bytes, and its deletion vector would end at"),
        (damaged_after(5), "damaged: {}: its deletion vector says that it has"),
        (damaged_after(9), "damaged: {}: its deletion vector begins with"),
        (damaged_after(40), "damaged: {}: the checksum of its deletion vector is"),
        (lambda file: path(file).write_bytes(b""), "damaged: {}: it has 0 bytes"),
    ],
    ids=["missing", "cut", "length", "magic", "content", "empty"],
)
def test_a_puffin_file_that_is_missing_or_damaged_is_named(tmp_path: Path, damage, said: str) -> None:
    of_a, _ = vectors_in(tmp_path)
    damage(of_a)
    with pytest.raises(FlussTieringError) as error:
        present_deletes(place_in(tmp_path), {"a": [of_a]})
    assert error.value.code is ErrorCode.CORRUPT_DATA
    assert error.value.message.startswith(f"position delete file {said.format(of_a.location)}")
    assert error.value.message.endswith(REMEDY)


def test_a_vector_of_another_data_file_is_noticed_by_its_size(tmp_path: Path) -> None:
    of_a, of_b = vectors_in(tmp_path)
    with pytest.raises(FlussTieringError, match="has 1000 positions, and the lake table's metadata says 2:") as error:
        present_deletes(place_in(tmp_path), {"a": [replace(of_a, vector=of_b.vector)]})
    assert error.value.code is ErrorCode.CORRUPT_DATA


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: path(file).unlink(), "missing: {}: expected the Parquet file that the lake table refers to"),
        (lambda file: path(file).write_bytes(b"no Parquet"), "damaged: {}: "),
        (lambda file: pq.write_table(pa.table({"file_path": ["a"]}), path(file)), "damaged: {}: "),
        (lambda file: pq.write_table(pa.table({"file_path": ["a"], "pos": [-1]}), path(file)), "damaged: {}: "),
        (lambda file: pq.write_table(pa.table({"file_path": ["a"], "pos": ["b"]}), path(file)), "damaged: {}: "),
    ],
    ids=["missing", "no Parquet", "no positions", "negative", "text"],
)
def test_a_position_delete_file_that_is_missing_or_damaged_is_named(tmp_path: Path, damage, said: str) -> None:
    (file,) = write_position_deletes(place_in(tmp_path), deletes_of({"a": [1]}))
    damage(file)
    with pytest.raises(FlussTieringError) as error:
        present_deletes(place_in(tmp_path), {"a": [file]})
    assert error.value.code is ErrorCode.CORRUPT_DATA
    assert error.value.message.startswith(f"position delete file {said.format(file.location)}")


def test_a_position_delete_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (file,) = write_position_deletes(place_in(tmp_path), deletes_of({"a": [1]}))
    with pytest.raises(FlussTieringError, match="is no Parquet file, and executors read no other") as error:
        present_deletes(place_in(tmp_path), {"a": [replace(file, location=f"{file.location}.avro")]})
    assert error.value.code is ErrorCode.LAKE_TABLE_MISMATCH


@pytest.mark.parametrize("write", ["files", "vectors", "present"])
def test_an_executor_that_does_not_see_the_lake_or_has_no_credentials_says_so(tmp_path: Path, write: str) -> None:
    of_a, _ = vectors_in(tmp_path / "there")
    place = place_in(tmp_path / "new")

    def act(writer) -> None:
        here, deletes = replace(place, writer=writer), deletes_of({"a": [1]})
        if write == "files":
            write_position_deletes(here, deletes)
        elif write == "vectors":
            write_vectors(here, deletes, {"a": PresentDeletes()})
        else:
            present_deletes(here, {"a": [of_a]})

    with pytest.raises(FlussTieringError, match="this executor does not see the lake table's folder"):
        act(replace(place.writer, shared_folder=f"file://{tmp_path}/nowhere"))
    with pytest.raises(ExpiredCredentialsError, match="they expired at"):
        act(replace(place.writer, io_properties={"s3.session-token-expires-at-ms": "1"}))
    assert not (tmp_path / "new").exists()
