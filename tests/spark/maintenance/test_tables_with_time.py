"""A table with a TIME column, which Spark opens from no Iceberg catalog, is expired, cleaned and repaired."""

from __future__ import annotations

import datetime as dt
import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from maintenance_support import expire
from spark_support import Tiering

import judges
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.spark.audit.clean import clean_table
from fluss_tiering.spark.audit.verify import verify_table
from fluss_tiering.spark.maintenance.compact import CompactionOptions, compact_table
from fluss_tiering.spark.maintenance.repair import repair_table

OPTIONS = {
    "table.datalake.enabled": "true",
    "table.datalake.freshness": "3min",
    # Our own tasks compact a table without equality deletes: see test_rewritten_files.py.
    "table.datalake.delete-files": "equality",
}


def ids_in_lake(tiering: Tiering, table: TableInfo) -> list[int]:
    lake = IcebergCatalogs(tiering.spark).find_table(table)
    metadata = lake.java_table.operations().current().metadataFileLocation()
    return sorted(judges.read(judges.DUCKDB, metadata, columns=["id"]).column("id").to_pylist())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["TIME(3)", "ARRAY<ROW<t TIME(3)>>"])
def test_a_table_with_times_is_maintained_as_far_as_spark_can(tiering: Tiering, kind: str):  # D46
    columns = (Column("id", DataType.parse("INT NOT NULL")), Column("t", DataType.parse(kind)))
    path = TablePath("times", "plain" if kind == "TIME(3)" else "nested")
    table = tiering.client.create_table(path, TableDescriptor(columns, ("id",), ("id",), 1, OPTIONS))
    noon = dt.time(12, 0, 0, 1000)
    for ids in ([1, 2], [2, 3], [4]):
        rows = [{"id": each, "t": noon if kind == "TIME(3)" else [{"t": noon}]} for each in ids]
        batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns))
        assert list(tiering.client.write_rows(table.path, WriteKind.UPSERT, [batch])) == [len(ids)]
        tiering.tier(table)
    folder = Path(urlparse(table.lake_catalog_properties["warehouse"]).path, *str(table.path).split("."), "data")
    stray, young = folder / "stray.parquet", folder / "young.parquet"
    for each in (stray, young):
        each.touch()
    os.utime(stray, (0, 0))

    done = expire(tiering, table, retain_last=1)
    assert (done.expired, done.kept) == (2, 1)
    assert done.deleted_files >= 2
    cleaned = clean_table(tiering.spark, table, grace=timedelta(days=1), delete=False)
    assert cleaned.error is None
    assert [Path(urlparse(each.location).path) for each in cleaned.orphans] == [stray]
    assert stray.exists()
    assert len(clean_table(tiering.spark, table, grace=timedelta(days=1), delete=True).deleted) == 1
    assert not stray.exists()
    assert young.exists()
    assert repair_table(tiering.spark, table).error is None
    assert ids_in_lake(tiering, table) == [1, 2, 3, 4]

    refused = compact_table(tiering.spark, table, CompactionOptions())
    assert refused.error is not None
    assert f"has the column 't' of type {DataType.parse(kind)}, which Spark cannot read from Iceberg" in refused.error
    with pytest.raises(FlussTieringError, match="which Spark cannot read from Iceberg") as caught:
        verify_table(tiering.client, tiering.spark, table, target=tiering.target)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
