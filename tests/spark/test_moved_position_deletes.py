"""A lake whose rows were deleted by position, at another place: the delete files name data files by their paths."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlparse

import pytest
from spark_support import Tiering, named

import judges
from fluss_tiering.lake.moved_deletes import move_paths
from fluss_tiering.lake.relocation import Relocation, relocate_lake
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo

READERS = {"2": (judges.DUCKDB, judges.PYICEBERG, judges.CLICKHOUSE), "3": (judges.DUCKDB, judges.PYICEBERG)}


def changed(tiering: Tiering, version: str) -> tuple[TableInfo, list[tuple[int, str | None]]]:
    """Return a table after rounds that touch so many data files that these share a delete file, and its rows."""
    properties = {"table.datalake.enabled": "true", "table.datalake.delete-files": "position"}
    table = tiering.table(num_buckets=1, properties={**properties, "iceberg.format-version": version})
    expected = named(range(200), "first")
    tiering.write(table, expected)
    tiering.tier(table)
    for step in range(10):
        rows = named(range(step, 200, 10), f"step {step}")
        tiering.write(table, rows)
        expected.update(rows)
        tiering.tier(table)
    # Each of the data files of the rounds before has a row among these.
    tiering.delete(table, list(range(20)))
    tiering.tier(table)
    return table, sorted((key, name) for key, name in expected.items() if key >= 20)


def warehouse_of(table: TableInfo) -> Path:
    return Path(urlparse(table.lake_catalog_properties["warehouse"]).path)


def moved(table: TableInfo, folder: Path) -> tuple[Path, Path]:
    """Copy the lake to another folder; return the lake's folder there and that of the table."""
    warehouse = warehouse_of(table)
    lake = folder / warehouse.parent.name
    shutil.copytree(warehouse.parent, lake)
    return lake, lake.joinpath(warehouse.name, *str(table.path).split("."))


def nothing_is_left(lake: Path, table: TableInfo) -> bool:
    """Return whether one more relocation changes nothing. It tells again of files that other tables lack."""
    again = relocate_lake(lake)
    return again is None or ((again.tables, again.files) == (0, 0) and str(table.path) not in again.missing)


def rows_of(reader: str, folder: Path) -> list[tuple[int, str | None]]:
    found = judges.read(reader, judges.newest_metadata(folder), columns=["id", "name"])
    names = [name.decode() if isinstance(name, bytes) else name for name in found["name"].to_pylist()]
    return sorted(zip(found["id"].to_pylist(), names, strict=True))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("version", ["2", "3"])
def test_engines_find_the_same_rows_after_a_move(tiering: Tiering, tmp_path: Path, version: str) -> None:
    table, expected = changed(tiering, version)
    lake, folder = moved(table, tmp_path / "new place")
    deletes = [file for file in folder.rglob("*") if "positions" in file.name and not file.name.endswith(".crc")]
    assert deletes
    assert isinstance(relocate_lake(lake), Relocation)
    for reader in READERS[version]:
        assert rows_of(reader, folder) == expected, reader
    # What is done is not done again.
    times = {file: file.stat().st_mtime_ns for file in deletes}
    assert nothing_is_left(lake, table)
    assert times == {file: file.stat().st_mtime_ns for file in deletes}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("version", ["2", "3"])
def test_a_move_that_was_interrupted_goes_on(tiering: Tiering, tmp_path: Path, version: str) -> None:
    table, expected = changed(tiering, version)
    lake, folder = moved(table, tmp_path / "new place")
    damaged = next(file for file in sorted(folder.rglob("*-positions-*")) if not file.name.startswith("."))
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    with pytest.raises(FlussTieringError, match=f"the delete file {damaged} cannot be read") as refused:
        relocate_lake(lake)
    assert refused.value.code is ErrorCode.CORRUPT_DATA
    damaged.write_bytes(content)
    relocate_lake(lake)
    for reader in READERS[version]:
        assert rows_of(reader, folder) == expected, reader


@pytest.mark.slow
@pytest.mark.long
def test_deletes_in_avro_files_are_found_after_a_move(tiering: Tiering, tmp_path: Path) -> None:
    table = tiering.table(num_buckets=1, properties={"table.datalake.enabled": "true"})
    tiering.write(table, named(range(20), "first"))
    tiering.tier(table)
    tiering.spark.sql(
        f"ALTER TABLE {tiering.name(table)} SET TBLPROPERTIES "
        "('write.delete.mode' = 'merge-on-read', 'write.delete.format.default' = 'avro')"
    )
    tiering.spark.sql(f"DELETE FROM {tiering.name(table)} WHERE id IN (6, 17)")
    lake, folder = moved(table, tmp_path / "new place")
    assert list(folder.rglob("*-deletes.avro"))
    assert isinstance(relocate_lake(lake), Relocation)
    # Spark reads the files of the new place only.
    shutil.rmtree(warehouse_of(table).joinpath(*str(table.path).split(".")))
    found = judges.read(judges.SPARK, judges.newest_metadata(folder), columns=["id", "name"], spark=tiering.spark)
    rows = sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
    assert rows == [(key, name) for key, name in named(range(20), "first").items() if key not in (6, 17)]
    assert nothing_is_left(lake, table)


def test_what_to_do_about_deletes_in_other_files_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a-deletes.orc"
    file.write_bytes(b"ORC")
    with pytest.raises(FlussTieringError, match="compact the table, tier new rows of it") as refused:
        move_paths(file, str, lambda *_: None)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.sampled(1)
def test_deletes_that_a_copy_lacked_are_moved_once_they_are_there(
    tiering: Tiering, tmp_path: Path, version: str
) -> None:
    properties = {"table.datalake.enabled": "true", "table.datalake.delete-files": "position"}
    table = tiering.table(num_buckets=1, properties={**properties, "iceberg.format-version": version})
    tiering.write(table, named(range(20), "first"))
    tiering.tier(table)
    tiering.delete(table, [3, 4])
    tiering.tier(table)
    lake, folder = moved(table, tmp_path / "new place")
    (lost,) = (file for file in folder.rglob("*-positions-*") if not file.name.startswith("."))
    lost.unlink()
    told = relocate_lake(lake)
    assert told is not None
    assert told.missing[str(table.path)] == [lost]
    shutil.copy(warehouse_of(table).parent / lost.relative_to(lake), lost)
    assert isinstance(relocate_lake(lake), Relocation)
    expected = [(key, name) for key, name in named(range(20), "first").items() if key not in (3, 4)]
    for reader in READERS[version]:
        assert rows_of(reader, folder) == expected, reader
    assert nothing_is_left(lake, table)
