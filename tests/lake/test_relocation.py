"""A lake of files that was moved or copied. pyiceberg, and below DuckDB, read it at its new place."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from fluss_tiering.lake import relocation
from fluss_tiering.lake.moved_deletes import move_paths
from fluss_tiering.lake.relocation import named_lake_folder, relocate_lake
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


def lake(folder: Path, scheme: str = "file://") -> SqlCatalog:
    folder.mkdir(parents=True, exist_ok=True)
    return SqlCatalog("fluss_lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{scheme}{folder}/warehouse")


def rows(start: int, count: int) -> pa.Table:
    return pa.table(
        {"id": range(start, start + count), "name": [f"/old/{each}" for each in range(start, start + count)]}
    )


def make(folder: Path, scheme: str = "file://", **properties: str) -> None:
    catalog = lake(folder, scheme)
    catalog.create_namespace("db")
    table = catalog.create_table("db.orders", rows(0, 1).schema, properties=properties)
    table.append(rows(0, 10))
    table.append(rows(10, 5))
    catalog.engine.dispose()


def count(folder: Path) -> int:
    catalog = lake(folder)
    found = catalog.load_table("db.orders").scan().to_arrow().num_rows
    catalog.engine.dispose()
    return found


def left_over(folder: Path, old: Path) -> list[Path]:
    """Return the files that still name the old folder, but for the note that does on purpose."""
    left = [name for name, content in contents(folder).items() if str(old.parent).encode() in content]
    return [name for name in left if name.suffix in (".db", ".json", ".avro") and name.name != "former-folders.json"]


def contents(folder: Path) -> dict[Path, bytes]:
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("scheme", ["file://", "file:", ""])
@pytest.mark.parametrize("place", [shutil.copytree, shutil.move], ids=["copied", "moved"])
def test_a_lake_is_whole_at_its_new_place_and_no_longer_names_the_old_one(
    tmp_path: Path, place: Callable[[Path, Path], object], scheme: str
) -> None:  # D23
    old, new = tmp_path / "old folder" / "lake", tmp_path / "new+folder" / "lake"
    make(old, scheme, **{"write.metadata.compression-codec": "gzip" if scheme else "none"})
    assert named_lake_folder(old) is None
    assert relocate_lake(old) is None
    before = contents(old)
    place(old, new)
    assert named_lake_folder(new) == old
    done = relocate_lake(new)
    assert done is not None
    assert (done.before, done.tables) == (old, 1)
    if old.exists():
        assert contents(old) == before
        shutil.rmtree(old)
    assert named_lake_folder(new) is None
    assert count(new) == 15
    catalog = lake(new)
    catalog.load_table("db.orders").append(rows(15, 1))
    catalog.engine.dispose()
    assert count(new) == 16
    assert not old.exists()
    assert left_over(new, old) == []


@pytest.mark.parametrize("place", ["new", "old/new", "older", "."])
def test_an_interrupted_relocation_is_run_again(tmp_path: Path, place: str) -> None:  # D23
    old, new = tmp_path / "old" / "lake", tmp_path / place / "lake"
    make(old)
    before = tmp_path / "before" / "lake"
    shutil.copytree(old, new)
    shutil.copytree(old, before)
    relocate_lake(new)
    # The catalog is changed last: everything else may be done already.
    shutil.copy(before / "catalog.db", new / "catalog.db")
    some = sorted(new.rglob("*.avro"))[0]
    shutil.copy(before / some.relative_to(new), some)
    shutil.rmtree(old)
    assert relocate_lake(new) is not None
    assert count(new) == 15


def test_what_is_moved_into_the_folder_where_it_was_is_moved_once(tmp_path: Path) -> None:
    """A delete file is in several manifests, so that its paths are looked at several times."""
    old, new = tmp_path / "data" / "lake", tmp_path / "data" / "data" / "lake"
    make(old)
    deletes = old / "warehouse" / "deletes.parquet"
    pq.write_table(pa.table({"file_path": [f"file://{old}/warehouse/a.parquet"], "pos": [0]}), deletes)
    shutil.copytree(old, new)
    moved = f"file://{new}/warehouse/a.parquet"
    mover = relocation._mover([old], new)
    for _ in range(2):
        move_paths(new / "warehouse" / "deletes.parquet", mover, relocation._replace)
        assert pq.read_table(new / "warehouse" / "deletes.parquet")["file_path"].to_pylist() == [moved]


def test_a_folder_under_two_names_is_one_folder(tmp_path: Path) -> None:  # D23
    make(tmp_path / "data" / "lake")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert named_lake_folder(tmp_path / "link" / "lake") is None


@pytest.mark.parametrize("damage", ["catalog", "manifest", "metadata"])
def test_damaged_files_are_reported(tmp_path: Path, damage: str) -> None:  # D23
    old, new = tmp_path / "old" / "lake", tmp_path / "new" / "lake"
    make(old)
    shutil.copytree(old, new)
    pattern = {"catalog": "catalog.db", "manifest": "*-m0.avro", "metadata": "*.metadata.json"}[damage]
    file = next(new.rglob(pattern))
    file.write_bytes(b"not what it was, and longer than any header of a file")
    with pytest.raises(FlussTieringError, match="cannot be read") as refused:
        relocate_lake(new)
    assert refused.value.code is ErrorCode.CORRUPT_DATA


@pytest.mark.parametrize("lost", ["metadata", "manifest list", "manifest", "data"])
def test_files_that_a_copy_lacks_are_told_and_moved_once_they_are_there(tmp_path: Path, lost: str) -> None:
    old, new = tmp_path / "old" / "lake", tmp_path / "new" / "lake"
    make(old)
    catalog = lake(old)
    table = catalog.load_table("db.orders")
    table.delete("id < 5")
    newest = table.current_snapshot()
    assert newest is not None
    manifest = next(each for each in newest.manifests(table.io) if each.has_added_files())
    location = {
        "metadata": table.metadata_location,
        "manifest list": newest.manifest_list,
        "manifest": manifest.manifest_path,
        "data": manifest.fetch_manifest_entry(table.io)[0].data_file.file_path,
    }[lost]
    catalog.engine.dispose()
    file = new / Path(location.removeprefix("file://")).relative_to(old)
    shutil.copytree(old, new)
    file.unlink()
    done = relocate_lake(new)
    assert done is not None
    assert done.missing == {"db.orders": [file]}
    again = relocate_lake(new)
    assert again is not None
    assert (again.before, again.tables, again.missing) == (old, 0, {"db.orders": [file]})
    shutil.copy(old / file.relative_to(new), file)
    last = relocate_lake(new)
    assert (last is None) is (lost == "data"), "a data file names no other file"
    assert last is None or (last.files > 0 and last.missing == {})
    shutil.rmtree(old)
    assert left_over(new, old) == []
    assert count(new) == 10
    assert relocate_lake(new) is None


def test_a_lake_that_was_moved_twice_knows_both_folders(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name / "lake" for name in ("first", "second", "third"))
    make(first)
    backup = tmp_path / "backup"
    shutil.copytree(first, backup)
    for old, new in ((first, second), (second, third), (third, first), (first, third)):
        shutil.move(old, new)
        done = relocate_lake(new)
        assert done is not None
        assert done.missing == {}
        old.parent.rmdir()
    (newest,) = (third / "warehouse" / "db" / "orders" / "metadata").glob("00002-*.metadata.json")
    shutil.copy(backup / newest.relative_to(third), newest)
    assert relocate_lake(third) is not None
    assert left_over(third, first) == left_over(third, second) == []
    assert count(third) == 15


def test_a_catalog_that_cannot_be_changed_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "old" / "lake", tmp_path / "new" / "lake"
    make(old)
    shutil.copytree(old, new)

    def read_only(*_: object) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    with monkeypatch.context() as patched:
        patched.setattr(relocation, "_change_catalog", read_only)
        with pytest.raises(
            FlussTieringError, match=r"catalog.db cannot be changed: attempt to write a readonly"
        ) as told:
            relocate_lake(new)
    assert told.value.code is ErrorCode.STORAGE
    assert relocate_lake(new) is not None
    assert count(new) == 15


def test_a_whole_copy_lacks_nothing_also_if_old_files_are_gone(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "lake", tmp_path / "new" / "lake"
    make(old)
    catalog = lake(old)
    table = catalog.load_table("db.orders")
    before = {task.file.file_path for task in table.scan().plan_files()}
    table.delete("id < 5")
    kept = {task.file.file_path for task in table.scan().plan_files()}
    catalog.engine.dispose()
    assert before - kept
    for each in before - kept:
        Path(each.removeprefix("file://")).unlink()
    shutil.copytree(old, new)
    done = relocate_lake(new)
    assert done is not None
    assert done.missing == {}


def test_an_empty_or_missing_catalog_names_nothing(tmp_path: Path) -> None:
    assert named_lake_folder(tmp_path) is None
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
        connection.execute("CREATE TABLE other (a)")
    assert named_lake_folder(tmp_path) is None
