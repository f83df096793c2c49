"""Rewrites that the driver plans for our tasks and commits, in real lake tables that other readers judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from deleted_rows import DAY, DeletedRows
from places import deletes_of

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile
from fluss_tiering.lake.iceberg.deletes.puffin import PuffinWriter
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.iceberg.maintenance.file_rows import Lineage
from fluss_tiering.lake.iceberg.maintenance.place_groups import PlannedRewrite, can_rewrite, planned_rewrite
from fluss_tiering.lake.iceberg.maintenance.rewrites import PartitionValues, Rewritten
from fluss_tiering.lake.iceberg.table import IcebergTable
from judges import DUCKDB, PYICEBERG, SPARK

ALL = {"rewrite-all": "true"}
TUESDAY = ("tue",)


def planned(
    table: DeletedRows,
    partitions: Sequence[PartitionValues] | None = None,
    options: Mapping[str, str] = ALL,
    max_bytes: int | None = None,
) -> tuple[IcebergTable, PlannedRewrite | None]:
    lake = table.open()
    return lake, planned_rewrite(lake, partitions, options, max_bytes)


def rewritten(
    table: DeletedRows, partitions: Sequence[PartitionValues] | None = None, options: Mapping[str, str] = ALL
) -> Rewritten:
    """Rewrite files as a job of Spark does, in this process."""
    lake, plan = planned(table, partitions, options)
    assert plan is not None
    return plan.commit(lake, [file for work in plan.places for file in plan.rewriter(work).files])


def delete_files(table: DeletedRows) -> int:
    return int(table.spark.sql(f"SELECT * FROM {table.name}.db.t.delete_files").count())


def sizes(table: DeletedRows) -> dict[str, int]:
    found = table.spark.sql(f"SELECT * FROM {table.name}.db.t.data_files").collect()
    return {row.file_path: row.file_size_in_bytes for row in found}


@pytest.mark.parametrize("version", [2, 3])
def test_only_the_named_partitions_are_rewritten(spark: Any, tmp_path: Path, version: int) -> None:
    table = DeletedRows(spark, tmp_path, version, merging=True)
    first, second = table.add(range(10), range(10, 20))
    third, fourth = table.add(range(100, 110), range(110, 120), day=TUESDAY)
    table.delete({first: [1, 2], second: [3]})
    table.delete({third: [4]}, TUESDAY)
    before, deletes = sizes(table), delete_files(table)
    snapshots = spark.sql(f"SELECT * FROM {table.name}.db.t.snapshots").count()
    assert can_rewrite(table.open())

    lake, plan = planned(table, [("tue", 0)])

    assert plan is not None
    (work,) = plan.places
    assert (work.bucket, work.partition_values, len(work.live)) == (0, TUESDAY, 2)
    # In the order of their commits, and of their locations in one commit.
    assert [[work.live[number].location for number in group] for group in work.groups] == [sorted([third, fourth])]
    folder, _, name = work.location.rpartition("/")
    assert folder == third.rpartition("/")[0]
    assert name.startswith("compacted-")
    assert plan.bytes == before[third] + before[fourth]
    (new,) = plan.rewriter(work).files
    assert plan.commit(lake, [new]) == Rewritten(2, plan.bytes, 1, 1)
    assert set(sizes(table)) == {first, second, new.location}
    assert delete_files(table) == deletes - 1
    table.remember()
    assert rewritten(table, [("mon", 0), ("tue", 0)]).files == 3
    assert spark.sql(f"SELECT * FROM {table.name}.db.t.snapshots").count() == snapshots + 2
    assert delete_files(table) == 0
    table.remember()
    table.check(DUCKDB, PYICEBERG, SPARK)


def test_no_more_bytes_are_rewritten_than_allowed_whatever_the_sizes_of_the_files(spark: Any, tmp_path: Path) -> None:
    table = DeletedRows(spark, tmp_path, 2)
    table.add(range(10), range(10, 20), range(20, 3000), range(3000, 3010))
    *small, large = sorted(sizes(table).values())
    each = {**ALL, "max-file-group-size-bytes": "1"}
    for max_bytes, files in (
        (sum(small), 3),
        (sum(small) - 1, 2),
        (large, 1),
        (small[0] - 1, 0),
        (sum(small) + large, 4),
    ):
        _, plan = planned(table, options=each, max_bytes=max_bytes)
        assert plan is not None
        assert plan.bytes <= max_bytes
        # If the large file comes first, no small one has room beside it.
        assert plan.files == files or (max_bytes == large and 1 <= plan.files <= 3)


def test_files_that_are_not_rewritten_are_still_known(spark: Any, tmp_path: Path) -> None:
    """The key index of a place is about all of its files."""
    table = DeletedRows(spark, tmp_path, 2)
    locations = table.add(range(10), range(10, 20), range(20, 3000))
    # The third file alone is large enough.
    large = sizes(table)[locations[2]]
    options = {"target-file-size-bytes": str(int(large / 1.2)), "min-input-files": "2"}
    _, plan = planned(table, options=options)
    assert plan is not None
    (work,) = plan.places
    (group,) = work.groups
    assert {work.live[each].location for each in group} == set(locations[:2])
    assert {each.location for each in work.live} == set(locations)


def test_deletes_that_other_files_need_stay(spark: Any, tmp_path: Path) -> None:
    table = DeletedRows(spark, tmp_path, 2)
    first, second = table.add(range(10), range(10, 20))
    # Iceberg takes a delete file for one of all files of the partition that are not newer.
    table.delete_together({first: [2], second: [5]})
    (third,) = table.add(range(20, 3000))
    table.delete_together({first: [1], third: [5]})
    target = int(sizes(table)[third] / 1.2)
    options = {"target-file-size-bytes": str(target), "min-input-files": "2", "delete-ratio-threshold": "0.9"}
    assert rewritten(table, options=options).delete_files == 1
    assert third in sizes(table)
    assert delete_files(table) == 1
    table.remember()
    table.check(DUCKDB, SPARK)


def test_vectors_of_one_puffin_file_are_told_apart(spark: Any, tmp_path: Path) -> None:
    table = DeletedRows(spark, tmp_path, 3)
    first, second = table.add(range(10), range(10, 20))
    (third,) = table.add(range(20, 3000))
    lake = table.open()
    place = table.place(lake)
    gone = {first: [1, 2], third: [5], second: [7]}
    puffin = PuffinWriter(f"{place.prefix}-all.puffin", place.open())
    vectors = {}
    for location, positions in gone.items():
        vector = DeletionVector()
        vector.add(deletes_of({location: positions}).positions.to_numpy())
        vectors[location] = (puffin.write(location, vector), len(vector))
    size = puffin.close()
    files = [
        LakeFile(
            FileContent.POSITION_DELETES,
            0,
            puffin.location,
            size,
            FileMetrics(count),
            DAY,
            referenced=(location,),
            vector=where,
        )
        for location, (where, count) in vectors.items()
    ]
    table.commit(lake, files)
    table.forget(gone)
    target = int(sizes(table)[third] / 1.2)
    options = {"target-file-size-bytes": str(target), "min-input-files": "2", "delete-ratio-threshold": "0.9"}

    assert rewritten(table, options=options).delete_files == 2

    assert third in sizes(table)
    (left,) = spark.sql(f"SELECT referenced_data_file FROM {table.name}.db.t.delete_files").collect()
    assert left.referenced_data_file == third
    table.remember()
    table.check(DUCKDB, SPARK)


def lineage_of_rows(table: DeletedRows) -> dict[int, tuple[int, int]]:
    rows = table.spark.sql(f"SELECT k, _row_id, _last_updated_sequence_number FROM {table.name}.db.t").collect()
    return {key: (row_id, number) for key, row_id, number in map(tuple, rows)}


def test_rows_keep_the_lineage_that_iceberg_gave_them(spark: Any, tmp_path: Path) -> None:
    table = DeletedRows(spark, tmp_path, 2)
    (first,) = table.add(range(10))
    _, plan = planned(table)
    assert plan is not None
    assert plan.places[0].lineage == {}
    table.upgrade(3)
    # Rows that are older than the upgrade get their ids in the next commit.
    assert planned(table)[1] is None
    (second,) = table.add(range(10, 20))
    table.add(range(30, 40), day=TUESDAY)
    before = lineage_of_rows(table)
    _, plan = planned(table, [("mon", 0)])
    assert plan is not None
    (work,) = plan.places
    assert work.lineage == {first: Lineage(*before[0]), second: Lineage(*before[10])}
    assert rewritten(table).new_files == 2
    assert lineage_of_rows(table) == before
    # The new files have it themselves.
    table.add(range(20, 25))
    before = lineage_of_rows(table)
    assert rewritten(table).new_files == 2
    assert lineage_of_rows(table) == before


def with_equality_deletes(table: DeletedRows) -> None:
    (location,) = table.add([50])
    table.delete_by_key({location: [0]})


def with_avro_deletes(table: DeletedRows) -> None:
    table.spark.sql(
        f"ALTER TABLE {table.name}.db.t SET TBLPROPERTIES "
        "('write.delete.format.default' = 'avro', 'write.delete.mode' = 'merge-on-read')"
    )
    table.spark.sql(f"DELETE FROM {table.name}.db.t WHERE k = 5")


def with_orc_files(table: DeletedRows) -> None:
    table.spark.sql(f"ALTER TABLE {table.name}.db.t SET TBLPROPERTIES ('write.format.default' = 'orc')")
    table.spark.sql(f"INSERT INTO {table.name}.db.t VALUES ('mon', 99, 'x', 0, 0, TIMESTAMP '2024-01-01 00:00:00Z')")


@pytest.mark.parametrize(
    "change",
    [with_equality_deletes, with_avro_deletes, with_orc_files],
    ids=lambda each: each.__name__,
)
def test_what_our_tasks_do_not_read_is_left_to_spark(spark: Any, tmp_path: Path, change: Any) -> None:
    table = DeletedRows(spark, tmp_path, 2)
    table.add(range(10), range(10, 20))
    table.add(range(100, 110), day=TUESDAY)
    change(table)
    assert planned(table)[1] is None
    # Other partitions do not matter.
    _, plan = planned(table, [("tue", 0)])
    assert plan is not None
    assert [each.partition_values for each in plan.places] == [TUESDAY]
    assert can_rewrite(table.open()) == (change is not with_equality_deletes)
