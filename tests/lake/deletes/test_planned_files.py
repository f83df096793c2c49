"""The live data files of a snapshot with their delete files: they are those of Iceberg's own metadata tables."""

from __future__ import annotations

import itertools
import json
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest
from lake_support import spark_table

from fluss_tiering.lake.files import FileContent, LakeFile, LiveDataFile, VectorPlace
from fluss_tiering.lake.iceberg.deletes import live_data_files

_NUMBERS = itertools.count(1)
PROPERTIES = "'write.delete.mode' = 'merge-on-read', 'write.distribution-mode' = 'hash'"
KINDS = {
    "a file for each": "'format-version' = '2', 'write.delete.granularity' = 'file'",
    "a file for all": "'format-version' = '2', 'write.delete.granularity' = 'partition'",
    "vectors": "'format-version' = '3'",
}


class Table:
    """A table of two partitions with three data files, of which Spark has deleted a row of two."""

    def __init__(self, spark: Any, folder: Path, kind: str) -> None:
        catalog = f"planned_{next(_NUMBERS)}"
        spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
        spark.conf.set(f"spark.sql.catalog.{catalog}.warehouse", f"file://{folder}")
        self.spark, self.name = spark, f"{catalog}.db.t"
        spark.sql(
            f"CREATE TABLE {self.name} (k INT, day STRING) USING iceberg PARTITIONED BY (day) "
            f"TBLPROPERTIES ({PROPERTIES}, {KINDS[kind]})"
        )
        spark.sql(f"INSERT INTO {self.name} VALUES (1, 'mon'), (2, 'mon'), (3, 'mon'), (4, 'tue')")
        spark.sql(f"INSERT INTO {self.name} VALUES (5, 'mon'), (6, 'mon')")
        spark.sql(f"DELETE FROM {self.name} WHERE k IN (2, 5)")

    @property
    def java(self) -> Any:
        return spark_table(self.spark, self.name)

    def metadata(self, table: str) -> list[Any]:
        return list(self.spark.table(f"{self.name}.{table}").collect())

    def live(self, snapshot_id: int | None) -> list[LiveDataFile]:
        return list(live_data_files(self.java, snapshot_id))


def referenced(row: Any) -> tuple[str, ...]:
    """Return the data file that a delete file is about, if it is about one alone."""
    if row.file_format == "PUFFIN":
        return (row.referenced_data_file,)
    names = set(pq.read_table(urlparse(row.file_path).path, columns=["file_path"])["file_path"].to_pylist())
    return tuple(names) if len(names) == 1 else ()


def described(file: LakeFile) -> tuple[Any, ...]:
    return file.location, file.size_bytes, file.metrics.record_count, file.referenced, file.vector


@pytest.mark.parametrize("kind", KINDS)
def test_data_files_and_their_deletes_are_those_of_the_metadata(spark: Any, tmp_path: Path, kind: str) -> None:
    table = Table(spark, tmp_path, kind)
    newest = table.java.currentSnapshot().snapshotId()
    live = table.live(newest)

    of_metadata = {
        (row.file_path, (row.partition.day,), row.record_count, row.spec_id, row.file_format)
        for row in table.metadata("data_files")
    }
    assert len(of_metadata) == len(live) == 3
    known = {(each.location, tuple(each.partition), each.rows, each.spec_id, each.file_format) for each in live}
    assert known == of_metadata

    expected = {
        (
            row.file_path,
            row.file_size_in_bytes,
            row.record_count,
            referenced(row),
            VectorPlace(row.content_offset, row.content_size_in_bytes) if kind == "vectors" else None,
        )
        for row in table.metadata("delete_files")
    }
    touched = [each for each in live if each.deletes]
    assert {each.partition for each in touched} == {("mon",)}
    assert len(touched) == 2
    deletes = [file for each in touched for file in each.deletes]
    assert len(deletes) == 2
    assert {described(file) for file in deletes} == expected
    for each in touched:
        for file in each.deletes:
            assert file.content is FileContent.POSITION_DELETES
            assert file.referenced in ((), (each.location,))
            assert json.loads(zlib.decompress(file.packed))["file-path"] == file.location
    assert not any(each.has_equality_deletes for each in live)


def test_files_of_an_older_spec_are_described_by_it(spark: Any, tmp_path: Path) -> None:
    table = Table(spark, tmp_path, "a file for each")
    table.java.updateSpec().addField("k").commit()
    spark.sql(f"INSERT INTO {table.name} VALUES (7, 'mon')")
    live = table.live(table.java.currentSnapshot().snapshotId())

    of_metadata = {
        (row.file_path, tuple(row.partition)[: row.spec_id + 1], row.spec_id) for row in table.metadata("data_files")
    }
    assert {spec for _, _, spec in of_metadata} == {0, 1}
    assert {(each.location, tuple(each.partition), each.spec_id) for each in live} == of_metadata
    assert len([file for each in live for file in each.deletes]) == 2


def test_a_partition_value_that_is_null_keeps_its_place(spark: Any, tmp_path: Path) -> None:
    table = Table(spark, tmp_path, "a file for each")
    table.java.updateSpec().addField("k").commit()
    spark.sql(f"INSERT INTO {table.name} VALUES (7, NULL), (NULL, NULL), (NULL, 'tue')")
    live = table.live(table.java.currentSnapshot().snapshotId())
    new = {each.partition for each in live if each.spec_id == 1}
    assert new == {(None, 7), (None, None), ("tue", None)}
    assert {each.partition for each in live if each.spec_id == 0} == {("mon",), ("tue",)}


def test_an_older_snapshot_has_its_own_files(spark: Any, tmp_path: Path) -> None:
    table = Table(spark, tmp_path, "a file for each")
    first = table.metadata("snapshots")[0].snapshot_id
    live = table.live(first)
    assert sorted(each.rows for each in live) == [1, 3]
    assert all(each.deletes == () for each in live)
    assert table.live(None) == []
