"""What a rewrite of data files would do, and what it does, by Iceberg's own metadata tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from lake_support import Lake, spark_table

from fluss_tiering.lake.iceberg.deletes import live_data_files
from fluss_tiering.lake.iceberg.maintenance.rewrites import (
    FileGroup,
    Rewritten,
    planned_groups,
    rewrite,
)
from fluss_tiering.lake.iceberg.maintenance.rewrites import rewrite_manifests as merge_manifests
from fluss_tiering.lake.iceberg.orphans import stale_metadata_files

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


def test_a_rewrite_of_a_partition_says_what_it_did(spark: Any, catalog: str) -> None:
    table = Table(spark, catalog, "PARTITIONED BY (v)", 2)
    spark.sql(f"DELETE FROM {table.name} WHERE k = 1")
    # Only below a newer snapshot does Iceberg take the delete file for one that applies to nothing any more.
    spark.sql(f"INSERT INTO {table.name} VALUES (7, 'a')")
    rows, before = table.rows(), table.files()
    done = rewrite(spark, table.java, [("a",)], ALL)

    after = table.files()
    assert done == Rewritten(3, sum(before["a",].values()), 1, 1)
    assert len(after["a",]) == 1
    assert not set(before["a",]) & set(after["a",])
    assert {key: after[key] for key in (("b",), (None,))} == {key: before[key] for key in (("b",), (None,))}
    assert table.count("delete_files") == 0
    assert table.rows() == rows


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


def test_many_manifests_become_few(spark: Any, catalog: str) -> None:
    table = Table(spark, catalog, "", 3)
    rows, before = table.rows(), table.count("manifests")
    assert before == 3
    assert merge_manifests(spark, table.java) == 2
    assert table.count("manifests") == 1
    assert table.rows() == rows


def test_what_several_rewrites_did_is_added_up() -> None:
    assert Rewritten(1, 2, 3, 4) + Rewritten(10, 20, 30, 40) == Rewritten(11, 22, 33, 44)


def test_metadata_files_that_the_newest_one_does_not_name_are_stale(spark: Any, tmp_path: Path) -> None:
    lake = Lake(
        spark,
        tmp_path,
        {"k": "INT"},
        properties={
            "write.metadata.previous-versions-max": "2",
            "write.metadata.delete-after-commit.enabled": "false",
        },
    )
    for number in range(5):
        lake.commit(lake.batch([{"k": number}]))
    newest = Path(urlparse(lake.metadata).path)
    named = {urlparse(each["metadata-file"]).path for each in json.loads(newest.read_text())["metadata-log"]}
    expected = {str(path) for path in newest.parent.glob("*.metadata.json")} - {str(newest)} - named
    assert len(named) == 2
    assert expected

    opened = lake.open()
    found = stale_metadata_files(spark, lake.table, opened, timedelta(0))
    assert {urlparse(each).path for each in found} == expected
    assert stale_metadata_files(spark, lake.table, opened, timedelta(hours=1)) == []
