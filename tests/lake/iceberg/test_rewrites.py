"""What rewrites of data files and of delete files would do, and what they do, by Iceberg's own metadata tables."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lake_support import spark_table

from fluss_tiering.lake.iceberg.deletes import live_data_files
from fluss_tiering.lake.iceberg.maintenance import position_deletes
from fluss_tiering.lake.iceberg.maintenance.position_deletes import mergeable_deletes, rewrite_position_deletes
from fluss_tiering.lake.iceberg.maintenance.rewrites import (
    FileGroup,
    planned_groups,
    rewrite,
)

ALL = {"rewrite-all": "true", "remove-dangling-deletes": "true"}
PROPERTIES = (
    "'format-version' = '2', 'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition', "
    "'write.distribution-mode' = 'hash'"
)
ROWS = "(1, 'a'), (2, 'a'), (3, 'b'), (4, 'b'), (5, NULL), (6, NULL)"


@pytest.fixture
def catalog(spark: Any, lake_properties: dict[str, str], tmp_path: Path) -> str:
    """Return the name of a catalog of this test in the session."""
    name = lake_properties["name"]
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{name}.warehouse", f"file://{tmp_path}")
    return name


class Table:
    """An Iceberg table of keys and texts, which Spark wrote in some inserts of the same rows."""

    def __init__(self, spark: Any, catalog: str, partitioning: str, inserts: int) -> None:
        self.spark = spark
        self.name = f"{catalog}.db.t"
        spark.sql(
            f"CREATE TABLE {self.name} (k INT, v STRING) USING iceberg {partitioning} TBLPROPERTIES ({PROPERTIES})"
        )
        for _ in range(inserts):
            spark.sql(f"INSERT INTO {self.name} VALUES {ROWS}")

    @property
    def java(self) -> Any:
        return spark_table(self.spark, self.name)

    def rows(self) -> list[Any]:
        return sorted(map(str, self.spark.table(self.name).collect()))

    def count(self, metadata_table: str) -> int:
        return int(self.spark.table(f"{self.name}.{metadata_table}").count())

    def files(self) -> dict[tuple[Any, ...], dict[str, int]]:
        """Return the sizes of the data files of each partition by their paths."""
        found: dict[tuple[Any, ...], dict[str, int]] = {}
        for row in self.spark.table(f"{self.name}.data_files").collect():
            partition = tuple(row["partition"]) if "partition" in row else ()
            found.setdefault(partition, {})[row["file_path"]] = row["file_size_in_bytes"]
        return found

    def planned(self, **options: str) -> Sequence[FileGroup]:
        return planned_groups(self.java, options or ALL)


def test_groups_are_the_files_of_partitions(spark: Any, catalog: str) -> None:
    table = Table(spark, catalog, "PARTITIONED BY (v)", 2)
    # One delete file, which applies to both data files of its partition.
    spark.sql(f"DELETE FROM {table.name} WHERE k = 1")
    deletes = {("a",): 2, ("b",): 0, (None,): 0}
    expected = {
        FileGroup(partition, len(files), sum(files.values()), 1, deletes[partition])
        for partition, files in table.files().items()
    }
    assert {group.files for group in expected} == {2}
    groups = table.planned()
    assert set(groups) == expected
    assert len(groups) == 3
    assert table.planned(**{"min-input-files": "3", "delete-file-threshold": "9"}) == []
    (group,) = table.planned(**{"min-input-files": "3", "delete-file-threshold": "1"})
    assert group.partition == ("a",)


@pytest.mark.parametrize(
    "partitioning",
    ["PARTITIONED BY (k)", "PARTITIONED BY (bucket(3, k))", "PARTITIONED BY (bucket(2, k), v)", ""],
    ids=["numbers", "buckets", "buckets and texts", "no partitions"],
)
def test_only_the_named_partitions_are_rewritten_in_one_commit(spark: Any, catalog: str, partitioning: str) -> None:
    table = Table(spark, catalog, partitioning, 2)
    rows, before, commits = table.rows(), table.files(), table.count("snapshots")
    partitions = sorted((group.partition for group in table.planned()), key=str)
    assert set(partitions) == set(before)
    chosen = partitions[::2]
    done = rewrite(spark, table.java, chosen, ALL)

    assert done.files == sum(len(before[partition]) for partition in chosen)
    assert done.new_files == len(chosen)
    after = table.files()
    for partition, files in before.items():
        if partition in chosen:
            assert len(after[partition]) == 1
            assert not set(after[partition]) & set(files)
        else:
            assert after[partition] == files
    assert table.count("snapshots") == commits + 1
    assert table.rows() == rows


def test_the_condition_for_many_partitions_is_not_deep(spark: Any, catalog: str) -> None:
    """Iceberg visits it by recursion, and a table may have thousands of partitions."""
    table = Table(spark, catalog, "PARTITIONED BY (v)", 1)
    java = table.java
    names = ["b", *(f"day{number}" for number in range(20_000))]
    found = live_data_files(java, java.currentSnapshot().snapshotId(), partitions=[(name,) for name in names])
    assert [file.partition for file in found] == [("b",)]


def test_files_that_are_larger_than_wanted_are_left_alone(
    spark: Any, catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our tasks cannot make files as small as somebody may want them."""
    table = Table(spark, catalog, "", 0)
    spark.sql(f"INSERT INTO {table.name} VALUES (1, 'a')")
    ((_, size),) = table.files()[()].items()
    tolerated = "fluss_tiering.lake.iceberg.maintenance.rewrites._TOLERATED_BYTES"

    def is_rewritten(target: int) -> bool:
        spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.target-file-size-bytes' = '{target}')")
        return bool(table.planned(**{"min-input-files": "2"}))

    assert not is_rewritten(1)
    monkeypatch.setattr(tolerated, 0)
    assert is_rewritten(int(size / 1.8) - 2)
    assert not is_rewritten(int(size / 1.8) + 2)
    monkeypatch.setattr(tolerated, size - 10)
    assert is_rewritten(9)
    assert not is_rewritten(10)


_NUMBERS = itertools.count(1)
DELETE_PROPERTIES = (
    "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition', "
    "'write.distribution-mode' = 'hash'"
)


class DeletedTable:
    """A table of three partitions. Of one row each, `a` has two position delete files, `b` one, and `c` none."""

    def __init__(self, spark: Any, folder: Path, version: int = 2) -> None:
        catalog = f"position_rewrites_{next(_NUMBERS)}"
        spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
        spark.conf.set(f"spark.sql.catalog.{catalog}.warehouse", f"file://{folder}")
        self.spark, self.name = spark, f"{catalog}.db.t"
        spark.sql(
            f"CREATE TABLE {self.name} (k INT, part STRING) USING iceberg PARTITIONED BY (part) "
            f"TBLPROPERTIES ({DELETE_PROPERTIES}, 'format-version' = '{version}')"
        )
        rows = ", ".join(f"({number}, '{part}')" for part in "abc" for number in range(9))
        spark.sql(f"INSERT INTO {self.name} VALUES {rows}")
        for number in range(2):
            parts = "'a', 'b'" if number == 0 else "'a'"
            spark.sql(f"DELETE FROM {self.name} WHERE k = {number} AND part IN ({parts})")

    @property
    def java(self) -> Any:
        return spark_table(self.spark, self.name)

    def rows(self) -> list[Any]:
        return sorted(map(tuple, self.spark.table(self.name).collect()))

    def delete_files(self) -> Counter[str]:
        found = self.spark.table(f"{self.name}.delete_files").collect()
        return Counter(row.partition.part for row in found)

    def worth(self, least_saved: int) -> list[Any]:
        return sorted(each.partition for each in mergeable_deletes(self.java, least_saved))


@pytest.mark.parametrize("size_of_group", [None, 1], ids=["one group", "a group for each file"])
def test_only_partitions_with_many_delete_files_are_rewritten(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_of_group: int | None
) -> None:
    if size_of_group is not None:
        # As with many delete files, which Iceberg divides among groups.
        options = {"rewrite-all": "true", "max-file-group-size-bytes": str(size_of_group)}
        monkeypatch.setattr(position_deletes, "_ALL", options)
    table = DeletedTable(spark, tmp_path)
    rows = table.rows()
    assert table.delete_files() == {"a": 2, "b": 1}
    assert table.worth(2) == []
    assert table.worth(1) == [("a",)]
    assert table.worth(0) == [("a",), ("b",)]

    # With a group for each file, each delete file is written anew.
    saved = 1 if size_of_group is None else 0
    assert rewrite_position_deletes(spark, table.java, [("a",)]) == saved
    assert table.delete_files() == {"a": 2 - saved, "b": 1}
    assert table.rows() == rows


def test_deletion_vectors_and_tables_of_several_specs_are_left_alone(spark: Any, tmp_path: Path) -> None:
    vectors = DeletedTable(spark, tmp_path / "vectors", 3)
    assert vectors.worth(-9) == []
    changed = DeletedTable(spark, tmp_path / "changed")
    assert changed.worth(-9) == [("a",), ("b",)]
    changed.java.updateSpec().addField("k").commit()
    assert changed.worth(-9) == []
