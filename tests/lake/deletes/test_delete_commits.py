"""Commits of deletes by position beside other writers: refused as a whole if a file that they name is not live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deleted_rows import DeletedRows
from lake_support import run_after_staging
from places import deletes_of

from fluss_tiering.lake.files import FileMetrics, LakeFile
from fluss_tiering.lake.iceberg.deletes import PresentDeletes, write_vectors
from fluss_tiering.lake.object_store import path_of
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from judges import DUCKDB, PYICEBERG, SPARK

pytestmark = pytest.mark.slow


@pytest.fixture(params=[2, 3])
def table(spark, tmp_path: Path, request) -> DeletedRows:
    return DeletedRows(spark, tmp_path, request.param, merging=True)


def compact(table: DeletedRows) -> None:
    call(table, "rewrite_data_files", "map('rewrite-all', 'true')")


def call(table: DeletedRows, procedure: str, options: str) -> None:
    table.spark.sql(f"CALL {table.name}.system.{procedure}(table => 'db.t', options => {options})")


def delete_by_spark(table: DeletedRows, key: int) -> None:
    table.spark.sql(f"ALTER TABLE {table.name}.db.t SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    table.spark.sql(f"DELETE FROM {table.name}.db.t WHERE k = {key}")


def keys(table: DeletedRows) -> list[int]:
    return sorted(row.k for row in table.spark.sql(f"SELECT k FROM {table.name}.db.t").collect())


def are_there(files: list[LakeFile]) -> set[bool]:
    return {Path(path_of(file.location)).exists() for file in files}


def refused(table: DeletedRows, lake, *pieces: list[LakeFile]) -> FlussTieringError:
    """Commit, and check that it is a conflict that leaves nothing behind."""
    with pytest.raises(FlussTieringError) as error:
        table.commit(lake, *pieces)
    assert error.value.code is ErrorCode.LAKE_CONFLICT, error.value
    assert "nothing was committed, the next round starts from what is there now" in error.value.message
    assert are_there([file for piece in pieces for file in piece]) == {False}
    return error.value


@pytest.mark.parametrize("when", ["before staging", "before the commit"])
def test_deletes_in_files_that_a_compaction_replaced_are_refused(table: DeletedRows, monkeypatch, when: str) -> None:
    first, second = table.add(range(10), range(10, 20))
    table.delete({first: [0]})
    lake = table.open()
    # The second piece has the deletes: its row delta alone would not see the compaction.
    pieces = table.data_files(lake, [30]), table.written(lake, {first: [1], second: [1]})
    if when == "before staging":
        compact(table)
    else:
        run_after_staging(monkeypatch, lambda: compact(table))
    error = refused(table, lake, *pieces)
    assert "ValidationException" in error.message
    assert keys(table) == table.live() == [*range(1, 20)]


def test_deletes_in_files_that_a_compaction_left_alone_are_committed(table: DeletedRows, monkeypatch) -> None:
    (first,) = table.add(range(10))
    table.add(range(100, 110), range(110, 120), day=("tue",))
    lake = table.open()
    files = table.written(lake, {first: [1]})
    options = "options => map('rewrite-all', 'true'), where => \"day = 'tue'\""
    run_after_staging(
        monkeypatch,
        lambda: table.spark.sql(f"CALL {table.name}.system.rewrite_data_files(table => 'db.t', {options})"),
    )
    table.commit(lake, files)
    table.rows[first][1] = None
    assert keys(table) == table.live()
    assert are_there(files) == {True}


def test_another_writer_s_deletes_in_the_same_file_are_a_conflict(table: DeletedRows) -> None:
    (first,) = table.add(range(10))
    lake = table.open()
    files = table.written(lake, {first: [1]})
    delete_by_spark(table, 5)
    refused(table, lake, files)
    table.rows[first][5] = None
    assert keys(table) == table.live()
    # The next round knows what Spark has deleted.
    table.delete({first: [1]})
    table.check(SPARK, DUCKDB)
    (live,) = table.live_files(table.open())
    assert len(live.deletes) == 1


def test_a_stale_driver_loses_against_deletes_alone(table: DeletedRows) -> None:
    first, second = table.add(range(10), range(10, 20))
    lake = table.open()
    rows, deletes = table.data_files(lake, [30]), table.written(lake, {second: [1]})
    # Its successor deletes rows of another data file.
    table.delete({first: [1]})
    for late in (rows, deletes):
        refused(table, lake, late)
    assert keys(table) == table.live()


@pytest.mark.parametrize("late", ["rows", "deletes"])
def test_a_stale_driver_loses_against_rows_alone(table: DeletedRows, monkeypatch, late: str) -> None:
    first, _ = table.add(range(10), range(10, 20))
    lake = table.open()
    files = table.data_files(lake, [30]) if late == "rows" else table.written(lake, {first: [1]})
    run_after_staging(monkeypatch, lambda: table.add([40]))
    refused(table, lake, files)
    assert keys(table) == table.live()


def test_a_delete_file_that_was_rewritten_cannot_be_replaced(spark, tmp_path: Path) -> None:
    table = DeletedRows(spark, tmp_path, 2, merging=True)
    first, second = table.add(range(10), range(10, 20))
    table.delete({first: [0]})
    table.delete({second: [0]})
    lake = table.open()
    files = table.written(lake, {first: [1]})
    assert len(files[0].replaces) == 1
    call(table, "rewrite_position_delete_files", "map('rewrite-all', 'true')")
    refused(table, lake, files)
    table.delete({first: [1]})
    assert keys(table) == table.live() == [*range(2, 10), *range(11, 20)]


@pytest.mark.sampled(1)
def test_spark_and_rounds_delete_in_turn(table: DeletedRows) -> None:
    first, second = table.add(range(10), range(10, 20))
    for key in (3, 7, 13):
        table.delete({first: [key % 10 + 1], second: [key % 10 + 2]})
        delete_by_spark(table, key)
        table.forget({first if key < 10 else second: [key % 10]})
    table.check(SPARK, DUCKDB)
    # A data file has one vector in any case, and Spark replaces position delete files, too.
    assert {len(file.deletes) for file in table.live_files(table.open())} == {1}
    compact(table)
    table.remember()
    table.check(SPARK, DUCKDB)


@pytest.mark.parametrize("when", ["before staging", "before the commit"])
def test_a_table_that_is_upgraded_in_mid_round_keeps_its_rows(spark, tmp_path: Path, monkeypatch, when: str) -> None:
    table = DeletedRows(spark, tmp_path, 2)
    first, second = table.add(range(10), range(10, 20))
    table.delete({first: [0]})
    lake = table.open()
    files = table.written(lake, {first: [1]})
    if when == "before staging":
        table.upgrade(3)
    else:
        run_after_staging(monkeypatch, lambda: table.upgrade(3))
    with pytest.raises(FlussTieringError, match="Must use DVs for position deletes in V3") as error:
        table.commit(lake, files)
    # Nothing was sent: it is sure that the files are not needed, and the round makes them again.
    assert error.value.code is ErrorCode.LAKE_CONFLICT
    assert are_there(files) == {False}
    table.remember()
    table.delete({first: [1, 2], second: [2]})
    table.check(SPARK, DUCKDB, PYICEBERG)


def test_files_of_the_other_format_version_are_refused(spark, tmp_path: Path) -> None:
    table = DeletedRows(spark, tmp_path, 2)
    (first,) = table.add(range(10))
    lake = table.open()
    files = table.written(lake, {first: [1]})
    table.version = 3
    vectors = table.written(lake, {first: [1]})
    for wrong, handle, said in (
        (vectors, lake, (ErrorCode.STORAGE, "could not prepare the commit to the lake table")),
        (files, None, (ErrorCode.LAKE_CONFLICT, "lake table changed by somebody else during the round")),
    ):
        with pytest.raises(FlussTieringError) as error:
            table.commit(handle or table.open(), wrong)
        assert error.value.code is said[0]
        assert said[1] in error.value.message
        assert are_there(wrong) == {False}
    assert keys(table) == table.live()


def test_two_vectors_of_a_data_file_are_refused(spark, tmp_path: Path) -> None:
    """Two vectors of one data file can be committed, and no engine then reads the table."""
    table = DeletedRows(spark, tmp_path, 3)
    (first,) = table.add(range(10))
    lake = table.open()
    for in_one_piece in (True, False):
        one, other = table.written(lake, {first: [1]}), table.written(lake, {first: [2]})
        with pytest.raises(ValueError, match=f"two deletion vectors of the data file {first}: expected one"):
            table.commit(lake, *([[*one, *other]] if in_one_piece else [one, other]))
        assert are_there([*one, *other]) == {False}
    assert keys(table) == table.live()


def test_the_files_of_a_round_s_end_are_packed_with_what_they_replace(table: DeletedRows) -> None:
    (first,) = table.add(range(10))
    table.delete({first: [0]})
    lake = table.open()
    files = lake.packed(table.written(lake, {first: [9]}))
    assert files[0].metrics == FileMetrics(2), "its number of positions alone"
    table.commit(lake, files)
    table.forget({first: [9]})
    table.check(SPARK, DUCKDB)


def test_a_puffin_file_that_the_driver_does_not_see_is_not_committed(spark, tmp_path: Path) -> None:
    table = DeletedRows(spark, tmp_path, 3)
    (first,) = table.add(range(10))
    lake = table.open()
    place = table.place(lake)
    (file,) = write_vectors(place, deletes_of({first: [1]}), {first: PresentDeletes()})
    with pytest.raises(FlussTieringError, match="the driver does not see 1 of the files"):
        table.commit(lake, [replace(file, size_bytes=file.size_bytes + 1)])
    assert keys(table) == table.live()
