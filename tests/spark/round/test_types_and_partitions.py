"""Rounds of tables with columns of every type, and of partitioned tables, compared with the rows of the lake."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from every_type import NESTED, TIMES, VALUES, in_utc, plain
from pyiceberg.table import StaticTable
from pyspark.sql import Row
from spark_support import Tiering

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.metadata.summary import from_summary
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, WriteKind

OPTIONS = {"table.datalake.enabled": "true", "table.datalake.freshness": "3min"}


def columns_of(types: dict[str, tuple[Any, Any]]) -> tuple[Column, ...]:
    """Return a key column, and for each type a nullable column and one that is not."""
    nullable = [Column(f"n{index}", DataType.parse(text)) for index, text in enumerate(types)]
    required = [Column(f"r{index}", DataType.parse(f"{text} NOT NULL")) for index, text in enumerate(types)]
    return (Column("id", DataType.parse("INT NOT NULL")), *nullable, *required)


def rows_of(types: dict[str, tuple[Any, Any]]) -> list[dict[str, Any]]:
    """Return three rows: the first values, the second values, and nulls where they are allowed."""
    rows = []
    for number in range(3):
        row: dict[str, Any] = {"id": number}
        for index, values in enumerate(types.values()):
            row[f"n{index}"] = None if number == 2 else values[number]
            row[f"r{index}"] = values[number % 2]
        rows.append(row)
    return rows


def make(tiering: Tiering, columns: tuple[Column, ...], **arguments: Any) -> TableInfo:
    return tiering.client.create_table(new_path(), TableDescriptor(columns, properties=OPTIONS, **arguments))


def write(tiering: Tiering, table: TableInfo, rows: list[dict[str, Any]], kind: WriteKind | None = None) -> None:
    columns = table.descriptor.columns
    if kind is WriteKind.DELETE:
        columns = tuple(table.descriptor.column(name) for name in table.descriptor.primary_key)
    kind = kind or (WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND)
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns))
    assert list(tiering.client.write_rows(table.path, kind, [batch])) == [len(rows)]


def lake_rows(tiering: Tiering, table: TableInfo) -> list[dict[str, Any]]:
    """Return the value as Spark reads it from the lake."""
    names = [column.name for column in table.descriptor.columns]
    return [{name: in_utc(row[name]) for name in names} for row in tiering.lake(table)]


def test_times_reach_the_lake_and_spark(tiering: Tiering):
    columns, rows = columns_of(TIMES), rows_of(TIMES)
    log = make(tiering, columns)
    write(tiering, log, rows)
    tiering.tier(log)

    metadata = tiering.lake_table(log).metadata_file
    read = StaticTable.from_metadata(metadata).scan().to_arrow().select([column.name for column in columns])
    assert read.to_pylist() == rows
    # Spark reads no times from Iceberg.
    with pytest.raises(FlussTieringError, match=r"'n0' of type TIME\(0\)") as caught:
        tiering.equal(log)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    source = tiering.spark.read.format("fluss").option("server", tiering.target).option("table", str(log.path)).load()
    assert source.orderBy("id").toArrow().to_pylist() == rows


def plain_rows(rows: list[Row], columns: tuple[Column, ...]) -> list[dict[str, Any]]:
    return [{column.name: plain(row[column.name]) for column in columns} for row in rows]


@pytest.mark.parametrize("types", [VALUES, NESTED], ids=["plain", "nested"])
def test_every_type_reaches_the_lake_and_spark(tiering: Tiering, types: dict[str, tuple[Any, Any]]):
    columns, rows = columns_of(types), rows_of(types)
    log = make(tiering, columns)
    keyed = make(tiering, columns, primary_key=("id",), num_buckets=2)
    write(tiering, log, rows)
    write(tiering, keyed, rows[:2])
    tiering.client.take_kv_snapshots([keyed.path])
    assert [result.error for result in tiering.tier_all(log, keyed)] == [None, None]
    assert plain_rows(tiering.lake(log), columns) == rows
    assert plain_rows(tiering.lake(keyed), columns) == rows[:2]
    write(tiering, keyed, [{**rows[2], "id": 0}, rows[2]])
    write(tiering, keyed, [{"id": 1}], WriteKind.DELETE)
    tiering.tier(keyed)

    left = [{**rows[2], "id": 0}, rows[2]]
    assert plain_rows(tiering.lake(keyed), columns) == left
    for table, expected in ((log, rows), (keyed, left)):
        assert tiering.equal(table)
        reader = tiering.spark.read.format("fluss").option("server", tiering.target)
        assert plain_rows(reader.option("table", str(table.path)).load().orderBy("id").collect(), columns) == expected


PARTITIONED = tuple(
    Column(name, DataType.parse(text))
    for name, text in (
        ("id", "INT NOT NULL"),
        ("day", "STRING NOT NULL"),
        ("zone", "STRING NOT NULL"),
        ("name", "STRING"),
    )
)


def row(number: int, day: str, name: str | None, zone: str = "eu") -> dict[str, Any]:
    return {"id": number, "day": day, "zone": zone, "name": name}


def partitions(tiering: Tiering, table: TableInfo) -> set[tuple[Any, ...]]:
    files = tiering.spark.sql(f"SELECT partition FROM {tiering.name(table)}.all_data_files").collect()
    return {tuple(file.partition) for file in files}


def offsets_in_summary(tiering: Tiering, table: TableInfo) -> dict[TableBucket, int]:
    """Return the offsets that the newest lake snapshot carries in its summary."""
    commit = from_summary(tiering.snapshots(table)[-1].summary)
    assert isinstance(commit, LakeCommit)
    return dict(commit.log_end_offsets)


def test_a_partitioned_log_table_is_tiered_as_partitions_come_and_go(tiering: Tiering):
    table = make(tiering, PARTITIONED, num_buckets=2, partition_keys=("day", "zone"))
    first = [row(1, "mon", "a"), row(2, "mon", "b", "us"), row(3, "tue", None)]
    write(tiering, table, first)
    tiering.tier(table)
    assert lake_rows(tiering, table) == first
    assert partitions(tiering, table) == {("mon", "eu"), ("mon", "us"), ("tue", "eu")}
    (last,) = tiering.client.list_tiering_rounds(table.path, limit=1)
    assert last.stats.partitions == ("mon$eu", "mon$us", "tue$eu")
    assert tiering.equal(table)

    partition_ids = {bucket.partition_id for bucket in offsets_in_summary(tiering, table)}
    tiering.client.drop_partition(table.path, ["mon", "eu"])
    (dropped,) = partition_ids - {
        info.bucket.partition_id for info in tiering.client.list_buckets([table.path])[table.path]
    }
    second = [row(4, "tue", "d"), row(5, "wed", "e")]
    write(tiering, table, second)
    result = tiering.tier(table)
    assert result.stats.rows == 2
    assert lake_rows(tiering, table) == first + second  # What is in the lake stays.
    later = {bucket.partition_id for bucket in offsets_in_summary(tiering, table)}
    assert len(later) == len(partition_ids)
    assert dropped not in later
    assert tiering.equal(table)

    tiering.client.drop_partition(table.path, ["tue", "eu"])
    assert tiering.tier(table).stats.rows == 0
    assert lake_rows(tiering, table) == first + second
    offsets = tiering.client.lake_snapshot(table.path).log_end_offsets
    live = {info.bucket: info.log_end_offset for info in tiering.client.list_buckets([table.path])[table.path]}
    assert {bucket: offset for bucket, offset in offsets.items() if bucket in live and offset > 0} == {
        bucket: end for bucket, end in live.items() if end > 0
    }


def test_a_partitioned_primary_key_table_replaces_and_deletes_within_a_partition(tiering: Tiering):
    table = make(
        tiering,
        PARTITIONED,
        primary_key=("id", "day"),
        bucket_keys=("id",),
        num_buckets=2,
        partition_keys=("day",),
    )
    write(tiering, table, [row(number, day, "old") for number in range(4) for day in ("mon", "tue")])
    tiering.client.take_kv_snapshots([table.path])
    write(tiering, table, [row(0, "mon", "log")])
    tiering.tier(table)
    expected = {(number, day): "old" for number in range(4) for day in ("mon", "tue")} | {(0, "mon"): "log"}
    assert {(each["id"], each["day"]): each["name"] for each in lake_rows(tiering, table)} == expected

    write(tiering, table, [row(1, "mon", "new"), row(9, "wed", "new")])
    write(tiering, table, [{"id": 2, "day": "tue"}, {"id": 3, "day": "mon"}], WriteKind.DELETE)
    tiering.tier(table)
    expected |= {(1, "mon"): "new", (9, "wed"): "new"}
    del expected[2, "tue"], expected[3, "mon"]
    found = lake_rows(tiering, table)
    assert {(each["id"], each["day"]): each["name"] for each in found} == expected
    assert len(found) == len(expected)
    assert tiering.equal(table)
    offsets = tiering.client.lake_snapshot(table.path).log_end_offsets
    assert len({bucket.partition_id for bucket in offsets} - {None}) == 3

    # A partition that comes back replaces, by a snapshot and by a log, what the lake keeps of the one that was dropped.
    for day in ("mon", "tue"):
        tiering.client.drop_partition(table.path, [day])
    write(tiering, table, [row(1, "mon", "again"), row(5, "mon", "again")])
    tiering.client.take_kv_snapshots([table.path])
    write(tiering, table, [row(0, "tue", "again"), row(7, "fri", "first")])
    tiering.tier(table)
    expected |= {(1, "mon"): "again", (5, "mon"): "again", (0, "tue"): "again", (7, "fri"): "first"}
    found = lake_rows(tiering, table)
    assert {(each["id"], each["day"]): each["name"] for each in found} == expected
    assert len(found) == len(expected)
    # D49: offsets of dropped partitions are forgotten, and a new partition's first rows need no deletes.
    offsets = tiering.client.lake_snapshot(table.path).log_end_offsets
    present = {info.bucket for info in tiering.client.list_buckets([table.path])[table.path]}
    assert offsets.keys() <= present
    deletes = tiering.spark.sql(f"SELECT partition FROM {tiering.name(table)}.all_delete_files").collect()
    assert {"mon", "tue"} == {file.partition[0] for file in deletes}
