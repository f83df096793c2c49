"""Lake tables of primary-key tables whose files do not tell buckets apart: by transforms of rows, or by nothing."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa
import pytest
from source_support import columns
from spark_support import Tiering

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.spark.maintenance.compact import compact_table
from judges import CLICKHOUSE, DUCKDB, PYICEBERG, SPARK, read

COLUMNS = columns(id="BIGINT NOT NULL", region="STRING NOT NULL", day="INT NOT NULL", at="TIMESTAMP(3)", n="INT")
REGIONS = ("north", "south", "east")

Rows = dict[tuple[Any, ...], dict[str, Any]]


def made(tiering: Tiering, key: tuple[str, ...] = ("id",), **options: Any) -> TableInfo:
    properties = {"table.datalake.enabled": "true", **options.pop("properties", {})}
    descriptor = TableDescriptor(COLUMNS, num_buckets=3, primary_key=key, properties=properties, **options)
    return tiering.client.create_table(new_path(), descriptor)


class History:
    """Changes a table at random, and knows the rows that it has."""

    def __init__(self, tiering: Tiering, table: TableInfo, seed: int) -> None:
        self._tiering = tiering
        self._table = table
        self._random = random.Random(seed)
        self.rows: Rows = {}

    def change(self, count: int) -> None:
        upserted: Rows = {}
        for _ in range(count):
            row = {
                "id": self._random.randrange(60),
                "region": self._random.choice(REGIONS),
                "day": self._random.randrange(20260101, 20260104),
                "at": dt.datetime(2026, 11, self._random.randrange(1, 6), 12),  # noqa: DTZ001 - has no zone
                "n": self._random.choice([None, *range(-30, 30)]),
            }
            upserted[self._key(row)] = row
        self._write(WriteKind.UPSERT, list(upserted.values()))
        self.rows.update(upserted)
        gone = self._random.sample(sorted(self.rows), min(5, len(self.rows)))
        self._write(WriteKind.DELETE, [self.rows.pop(key) for key in gone])

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[key] for key in self._table.descriptor.primary_key)

    def _write(self, kind: WriteKind, rows: list[dict[str, Any]]) -> None:
        batch = pa.Table.from_pylist(rows, schema=arrow_schema(COLUMNS))
        if kind is WriteKind.DELETE:
            batch = batch.select(list(self._table.descriptor.primary_key))
        assert sum(self._tiering.client.write_rows(self._table.path, kind, [batch])) == len(rows)

    def require_in_lake(self, *judges: str) -> None:
        lake = self._tiering.lake_table(self._table)
        for judge in judges:
            found = read(judge, lake.metadata_file, spark=self._tiering.spark).to_pylist()
            # ClickHouse gives text as bytes.
            ids = [(row["id"], row["n"]) for row in found]
            assert sorted(ids, key=str) == sorted(((row["id"], row["n"]) for row in self.rows.values()), key=str), judge
        assert self._tiering.equal(self._table)


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize(
    ("partition_by", "options"),
    [
        ("days(at), bucket(2, region)", {}),
        ("truncate(10, n)", {"key": ("region", "id"), "partition_keys": ("region",), "bucket_keys": ("id",)}),
        ("n", {"key": ("day", "id"), "partition_keys": ("day",), "bucket_keys": ("id",)}),
        (None, {"key": ("day", "id"), "partition_keys": ("day",), "bucket_keys": ("id",)}),
    ],
)
@pytest.mark.sampled(3)
def test_rows_are_updated_in_whichever_partition_they_are(
    tiering: Tiering, partition_by: str | None, options: dict[str, Any], version: str
) -> None:
    properties = {"iceberg.format-version": version}
    if partition_by is not None:
        properties["table.datalake.partition-by"] = partition_by
    table = made(tiering, properties=properties, **options)
    history = History(tiering, table, seed=1)
    for number in range(5):
        history.change(40)
        tiering.tier(table)
        if number == 2:
            assert compact_table(tiering.spark, table, min_input_files=2).error is None
        history.require_in_lake(SPARK)
    history.require_in_lake(DUCKDB, PYICEBERG, *([CLICKHOUSE] if version == "2" else ()))


@pytest.mark.parametrize("version", ["2", "3"])
def test_files_of_older_partitionings_are_updated_too(tiering: Tiering, version: str) -> None:
    properties = {"table.datalake.partition-by": "bucket(3, id)", "iceberg.format-version": version}
    table = made(tiering, key=("region", "id"), partition_keys=("region",), bucket_keys=("id",), properties=properties)
    history = History(tiering, table, seed=2)
    history.change(40)
    tiering.tier(table)
    for remove, add in (("id_bucket", "n"), ("region", "day"), ("n", None), ("day", None)):
        evolution = tiering.lake_table(table).java_table.updateSpec().removeField(remove)
        (evolution.addField(add) if add else evolution).commit()
        history.change(40)
        tiering.tier(table)
        history.require_in_lake(SPARK)
    history.require_in_lake(DUCKDB, PYICEBERG)
    assert tiering.lake_table(table).java_table.spec().isUnpartitioned()


def test_deletes_by_key_are_refused_where_rows_move(tiering: Tiering) -> None:
    options = {"table.datalake.partition-by": "days(at)", "table.datalake.delete-files": "equality"}
    with pytest.raises(FlussTieringError, match="does not reach a row in another partition") as refused:
        made(tiering, properties=options)
    assert refused.value.code is ErrorCode.INVALID_TABLE
    table = made(tiering, properties={"table.datalake.delete-files": "equality"})
    history = History(tiering, table, seed=3)
    history.change(10)
    tiering.tier(table)
    tiering.lake_table(table).java_table.updateSpec().addField("n").commit()
    history.change(10)
    assert "table.datalake.delete-files=equality" in tiering.fail(table)


@pytest.mark.parametrize("version", ["2", "3"])
def test_files_that_are_compacted_during_a_round_are_updated_where_they_are_then(
    tiering: Tiering, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"table.datalake.partition-by": "days(at)", "iceberg.format-version": version}
    table = made(tiering, properties=properties)
    history = History(tiering, table, seed=4)
    for _ in range(2):
        history.change(40)
        tiering.tier(table)
    history.change(40)
    commit = IcebergTable.commit
    compacted: list[int] = []

    def after_compaction(lake: IcebergTable, *arguments: Any, **options: Any) -> int:
        if not compacted:
            done = compact_table(tiering.spark, table, min_input_files=2)
            assert done.error is None
            compacted.append(done.rewritten_files)
        return commit(lake, *arguments, **options)

    monkeypatch.setattr(IcebergTable, "commit", after_compaction)
    tiering.tier(table)
    assert compacted[0] > 0
    history.require_in_lake(SPARK, PYICEBERG)
    history.change(40)
    tiering.tier(table)
    history.require_in_lake(DUCKDB)
