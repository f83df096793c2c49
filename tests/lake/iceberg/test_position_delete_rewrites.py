"""Which partitions have position delete files that a rewrite would save, and what it does, by Iceberg's own tables."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lake_support import spark_table

from fluss_tiering.lake.iceberg.maintenance import position_deletes
from fluss_tiering.lake.iceberg.maintenance.position_deletes import mergeable_deletes, rewrite_position_deletes

_NUMBERS = itertools.count(1)
PROPERTIES = (
    "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition', "
    "'write.distribution-mode' = 'hash'"
)


class Table:
    """A table of three partitions. Of one row each, `a` has two position delete files, `b` one, and `c` none."""

    def __init__(self, spark: Any, folder: Path, version: int = 2) -> None:
        catalog = f"position_rewrites_{next(_NUMBERS)}"
        spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
        spark.conf.set(f"spark.sql.catalog.{catalog}.warehouse", f"file://{folder}")
        self.spark, self.name = spark, f"{catalog}.db.t"
        spark.sql(
            f"CREATE TABLE {self.name} (k INT, part STRING) USING iceberg PARTITIONED BY (part) "
            f"TBLPROPERTIES ({PROPERTIES}, 'format-version' = '{version}')"
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
    table = Table(spark, tmp_path)
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
    vectors = Table(spark, tmp_path / "vectors", 3)
    assert vectors.worth(-9) == []
    changed = Table(spark, tmp_path / "changed")
    assert changed.worth(-9) == [("a",), ("b",)]
    changed.java.updateSpec().addField("k").commit()
    assert changed.worth(-9) == []
