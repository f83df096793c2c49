"""Files with wrong bounds and wrong physical types are found and mended, and the readers that judge see every row."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake_support import Lake
from older_writer import older_writer

import fluss_tiering.spark.maintenance.repair as repairing
from fluss_tiering.lake.iceberg.repair.check import WrongFile
from fluss_tiering.lake.iceberg.repair.live_files import live_entries, rewrite_bounds
from fluss_tiering.spark.file_jobs import wrong_files
from fluss_tiering.spark.maintenance.repair import Repair, repair_table
from judges import CLICKHOUSE, DUCKDB, SPARK, Predicate

LONG = "y" * 5000
KINDS = {"k": "STRING NOT NULL", "v": "INT", "d": "DECIMAL(9, 2)"}


def rows(keys: str | list[str], value: int) -> list[dict[str, Any]]:
    return [{"k": key, "v": value, "d": Decimal(value)} for key in keys]


def found_in(lake: Lake) -> list[WrongFile]:
    opened = lake.open()
    return wrong_files(lake.spark, opened.file_writer(), live_entries(opened.java_table))


def repaired(lake: Lake) -> Repair:
    done = repair_table(lake.spark, lake.table)
    assert done.error is None
    assert found_in(lake) == []
    return done


def numbers_of(lake: Lake) -> dict[str, tuple[int, ...]]:
    """Return the snapshot and the sequence numbers of each file."""
    return {
        entry.file.location: (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
        for entry in live_entries(lake.open().java_table)
    }


def seen(lake: Lake, judge: str) -> list[Any]:
    return lake.values(judge, "v")


def damaged(spark, folder: Path, **properties: str) -> Lake:
    """Return a lake table with narrow bounds in a data file and in a delete file, and deletes before and after both."""
    lake = Lake(spark, folder, KINDS, ("k",), properties)
    lake.commit(lake.batch(rows("a", 1)))
    lake.commit(lake.batch(rows("z", 1)))
    lake.commit(lake.batch(rows("z", 2)), upsert=True)
    with older_writer():
        # The bounds of the keys become m to n, in the data file and in the delete file.
        lake.commit(lake.batch(rows("mn", 3)), lake.batch(rows(["a", LONG], 3)), upsert=True)
    lake.commit(lake.batch(rows([LONG], 4)), upsert=True)
    return lake


RIGHT = [2, 3, 3, 3, 4]
"""The values of z, of m, n and a, and of the long key."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("version", ["2", "3"])
def test_narrow_bounds_are_mended_in_the_metadata(spark, tmp_path, version):  # D40
    lake = damaged(spark, tmp_path, **{"format-version": version})
    # The old rows of a and of the long key are still there.
    assert seen(lake, SPARK) == [1, 2, 3, 3, 3, 3, 4]
    numbers = numbers_of(lake)
    wrong = found_in(lake)
    assert sorted((each.narrow_bounds, "-deletes-" in each.location, each.wrong_types) for each in wrong) == [
        (("k",), False, ()),
        (("k",), True, ()),
    ]
    before = lake.open().base()

    done = repaired(lake)

    assert (done.rebound_files, done.rewritten_files, done.checked_files) == (2, 0, 8)
    assert numbers_of(lake) == numbers
    snapshot = lake.open().java_table.currentSnapshot()
    assert (snapshot.operation(), snapshot.parentId()) == ("replace", before)
    for judge in (DUCKDB, CLICKHOUSE, SPARK):
        assert seen(lake, judge) == RIGHT, judge
        assert lake.values(judge, "v", Predicate("k", "=", "a")) == [3]
        assert lake.values(judge, "v", Predicate("k", "=", LONG)) == [4]
    # Nothing is left to mend, so nothing is committed.
    assert repaired(lake).rebound_files == 0
    assert lake.open().java_table.currentSnapshot().snapshotId() == snapshot.snapshotId()
    # Later deletes apply, and the files outlive the snapshots from before the repair.
    lake.commit(lake.batch(rows("an", 5)), upsert=True)
    lake.open().java_table.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    for judge in (DUCKDB, SPARK):
        assert seen(lake, judge) == [2, 3, 4, 5, 5], judge


@pytest.mark.parametrize("key", ["k", "d"])
@pytest.mark.sampled(1)
def test_files_with_wrong_physical_types_are_written_again(spark, tmp_path, key):  # D50
    kinds = {"k": "STRING NOT NULL", "v": "INT", "d": "DECIMAL(9, 2) NOT NULL", "r": "ROW<e DECIMAL(18, 3)>"}
    lake = Lake(spark, tmp_path, kinds, (key,))

    def batch(keys: list[str], value: int) -> pa.RecordBatch:
        return lake.batch(
            {"k": each, "v": value, "d": Decimal(ord(each[0])) - 110, "r": {"e": Decimal(value)}} for each in keys
        )

    with older_writer(narrow_bounds=False, decimal_bytes=True):
        lake.commit(batch(["a", "b"], 1), batch(["c", LONG], 1))
        lake.commit(batch(["b"], 2), upsert=True)
    lake.commit(batch(["c"], 3), upsert=True)
    wrong = found_in(lake)
    data = [each for each in wrong if "-deletes-" not in each.location]
    assert {each.wrong_types for each in data} == {("d", "r.e")}
    assert [each.wrong_types for each in wrong if each not in data] == ([("d",)] if key == "d" else [])
    numbers = sorted(sequence for _, sequence, _ in numbers_of(lake).values())

    done = repaired(lake)

    assert done.rewritten_files == len(wrong)
    assert sorted(sequence for _, sequence, _ in numbers_of(lake).values()) == numbers
    for judge in (DUCKDB, CLICKHOUSE, SPARK):
        assert lake.values(judge, "v", Predicate("d", ">", Decimal("-11.5"))) == [1, 3], judge
        assert seen(lake, judge) == [1, 1, 2, 3], judge
    for location in numbers_of(lake):
        schema = pq.ParquetFile(location.removeprefix("file:")).schema
        short = [schema.column(number) for number in range(len(schema)) if schema.column(number).precision > 0]
        assert {column.physical_type for column in short if column.logical_type.type == "DECIMAL"} <= {"INT32", "INT64"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("meanwhile", ["round", "manifests"])
@pytest.mark.parametrize("decimal_bytes", [False, True])
def test_a_repair_beside_other_commits_loses_and_repeats_nothing(
    spark, tmp_path, monkeypatch, meanwhile, decimal_bytes
):  # D40
    lake = Lake(spark, tmp_path, KINDS, ("k",))
    with older_writer(decimal_bytes=decimal_bytes):
        lake.commit(lake.batch(rows("mn", 1)), lake.batch(rows(["a", LONG], 1)))
        lake.commit(lake.batch(rows("m", 2)), upsert=True)
    committed: list[str] = []

    def first_somebody_else(do: Callable[..., Any]) -> Callable[..., Any]:
        def commit(*args: Any) -> Any:
            if not committed:
                committed.append(meanwhile)
                if meanwhile == "round":
                    lake.commit(lake.batch(rows("an", 3)), upsert=True)
                else:
                    spark.sql(f"CALL {lake.name}.system.rewrite_manifests('db.t')")
            return do(*args)

        return commit

    monkeypatch.setattr(repairing, "rewrite_bounds", first_somebody_else(rewrite_bounds))
    monkeypatch.setattr(repairing, "replace_files", first_somebody_else(repairing.replace_files))
    done = repaired(lake)

    assert committed == [meanwhile]
    assert done.conflicts == (1 if meanwhile == "manifests" and not decimal_bytes else 0)
    for judge in (DUCKDB, CLICKHOUSE, SPARK):
        assert seen(lake, judge) == ([1, 2, 3, 3] if meanwhile == "round" else [1, 1, 1, 2]), judge


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_repair_beside_the_first_deletes_by_position_loses_none(spark, tmp_path, monkeypatch, version):
    lake = Lake(spark, tmp_path, KINDS, ("k",), {"format-version": version, "write.delete.granularity": "file"})
    with older_writer(narrow_bounds=False, decimal_bytes=True):
        lake.commit(lake.batch(rows("ab", 1)))
        lake.commit(lake.batch(rows("cd", 2)))
    replace = repairing.replace_files

    def after_a_delete(*args: Any) -> None:
        spark.sql(f"DELETE FROM {lake.name}.db.t WHERE k IN ('a', 'c')")
        replace(*args)

    monkeypatch.setattr(repairing, "replace_files", after_a_delete)
    done = repair_table(lake.spark, lake.table)

    for judge in (DUCKDB, SPARK):
        assert seen(lake, judge) == [1, 2], judge
    assert done.error is not None
    assert "run `fluss-tiering compact`" in done.error
    # What was written in vain is gone.
    assert len(list(tmp_path.rglob("data/**/*-????????-????-????-????-????????????.parquet"))) == 0


def test_a_round_that_began_before_a_repair_commits_after_it(spark, tmp_path):  # D40
    lake = damaged(spark, tmp_path)
    opened = lake.open()
    files = lake.write(opened, [lake.batch(rows("a", 6))], [lake.batch(rows("a", 6))])
    repaired(lake)
    lake.commit_files(opened, files)

    for judge in (DUCKDB, SPARK):
        assert seen(lake, judge) == [2, 3, 3, 4, 6], judge


def test_right_files_are_left_alone(spark, tmp_path):
    lake = Lake(spark, tmp_path, {**KINDS, "t": "TIME(3)", "f": "DOUBLE"}, ("k",))
    lake.commit(lake.batch(rows(["a", LONG], 1)), lake.batch(rows("z", 1)))
    lake.commit(lake.batch(rows(["a", LONG], 2)), upsert=True)
    before = lake.open().base()

    done = repaired(lake)

    assert (done.checked_files, done.wrong_files, done.rebound_files) == (3, (), 0)
    assert lake.open().base() == before
