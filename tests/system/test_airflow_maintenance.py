"""The example DAG of maintenance as it is, under a real Airflow, with Spark and Iceberg."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import judges
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.spark import application
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.round.progress import Progress

DAG = "fluss_lake_maintenance"
ROUNDS = 6
"""One more than the small files of a bucket that are worth rewriting by default."""
AUTO = {"table.datalake.auto-compaction": "true", "table.datalake.auto-expire-snapshot": "true"}
EXPIRE_AT_ONCE = {"iceberg.history.expire.max-snapshot-age-ms": "1"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def tier_in_small_rounds(stack, spark, *tables: str) -> None:
    """Tier tables several times. Each round changes some keys, and so adds small files."""
    paths = tuple(map(TablePath.parse, tables))
    for number in range(ROUNDS):
        keys = range(number * 10, number * 10 + 50)
        rows = pa.table({"id": keys, "name": [f"round {number}" for _ in keys]}, schema=SCHEMA)
        for path in paths:
            list(stack.client.write_rows(path, WriteKind.UPSERT, [rows]))
        results = application.run(TierOptions(server=stack.server, tables=paths), spark, Progress())
        assert [each.error for each in results] == [None] * len(paths)


def metadata_of(stack, table: str) -> str:
    (info,) = stack.client.get_tables([TablePath.parse(table)])
    warehouse = Path(urlparse(info.lake_catalog_properties["warehouse"]).path)
    return judges.newest_metadata(warehouse.joinpath(*table.split(".")))


def rows(stack, table: str) -> list[tuple[int, str]]:
    """The rows of the lake table as DuckDB reads them."""
    read = judges.read(judges.DUCKDB, metadata_of(stack, table), columns=["id", "name"])
    return sorted((each["id"], each["name"]) for each in read.to_pylist())


def files(stack, table: str) -> tuple[int, int]:
    """The numbers of data files and of delete files, as pyiceberg lists them."""
    inspected = StaticTable.from_metadata(metadata_of(stack, table)).inspect
    return inspected.data_files().num_rows, inspected.delete_files().num_rows


def snapshots(stack, table: str) -> int:
    """The number of the table's snapshots, as pyiceberg lists them."""
    return len(StaticTable.from_metadata(metadata_of(stack, table)).snapshots())


@pytest.mark.long
def test_the_tables_whose_options_ask_for_it_have_fewer_files_and_the_same_rows(stack, new_table, spark):
    wanted, other = new_table(more={**AUTO, **EXPIRE_AT_ONCE}), new_table()
    tier_in_small_rounds(stack, spark, wanted, other)
    before = {table: (rows(stack, table), files(stack, table), snapshots(stack, table)) for table in (wanted, other)}
    data_files, delete_files = before[wanted][1]
    assert data_files >= ROUNDS
    assert delete_files

    stack.airflow.wait_for_dag(DAG)
    run = stack.airflow.trigger(DAG)
    assert stack.airflow.wait_for_run(DAG, run) == "success"

    assert rows(stack, wanted) == before[wanted][0]
    # Each of the two buckets has one data file.
    assert files(stack, wanted) == (2, 0)
    assert snapshots(stack, wanted) < before[wanted][2]
    assert (rows(stack, other), files(stack, other), snapshots(stack, other)) == before[other]
    assert f"{wanted}: maintained in" in stack.airflow.task_log(DAG, run, "maintain")
