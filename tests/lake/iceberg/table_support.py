"""Lake tables of two columns, for tests that open them, write files for them and commit."""

from __future__ import annotations

import uuid
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath

PATH = TablePath("db", "t")
COLUMNS = (Column("k", DataType.parse("INT NOT NULL")), Column("v", DataType.parse("STRING")))
# One bucket: every key then is where Iceberg's own transform puts it.
KEYED = TableDescriptor(COLUMNS, ("k",), ("k",), 1, {"table.datalake.freshness": "3min"})
LOG = TableDescriptor(COLUMNS, num_buckets=2)


def name(table: TableInfo) -> str:
    return f"{table.lake_catalog_properties['name']}.{table.path}"


def piece(lake, rows: dict[int, str], *, delete: bool = False, bucket: int = 0, location: str | None = None):
    writer = lake.file_writer().open_piece(bucket, location or lake.piece_location(bucket, str(uuid.uuid4())), 0)
    batch = pa.RecordBatch.from_pydict({"k": list(rows), "v": list(rows.values())}, schema=arrow_schema(COLUMNS))
    stamps = np.arange(len(rows))
    writer.write(batch, stamps, stamps)
    if delete:
        writer.delete(batch.select(["k"]))
    return writer.close()


def commit_of(end: int, table_id: int = 1) -> LakeCommit:
    return LakeCommit(table_id, 5, str(uuid.uuid4()), "/offsets/1", {TableBucket(table_id, 0): end})


def rows(spark, table: TableInfo) -> list[tuple]:
    return sorted(tuple(row) for row in spark.sql(f"SELECT k, v FROM {name(table)}").collect())


def exists(file) -> bool:
    return Path(urlparse(file.location).path).exists()


def compact(spark, table: TableInfo) -> None:
    catalog = table.lake_catalog_properties["name"]
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => '{name(table)}', options => map('rewrite-all', 'true'))"
    )


def insert(spark, table: TableInfo, key: int) -> None:
    spark.sql(f"INSERT INTO {name(table)} VALUES ({key}, 'theirs', 0, 0, TIMESTAMP '2020-01-01 00:00:00')")
