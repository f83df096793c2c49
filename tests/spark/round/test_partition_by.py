"""Lake tables of log tables that are partitioned by transforms of their rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_support import columns
from spark_support import Tiering

from engine_support import new_path
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.by_rows.transforms import RowTransform, rows_by_partition
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.partition_by import PartitionTransform
from fluss_tiering.model.table import (
    BucketInfo,
    DataType,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    WriteKind,
)
from fluss_tiering.spark.maintenance.compact import compact_table
from judges import CLICKHOUSE, DUCKDB, PYICEBERG, SPARK, Predicate, read

COLUMNS = columns(
    id="BIGINT NOT NULL",
    at="TIMESTAMP(3)",
    seen="TIMESTAMP_LTZ(9)",
    day="DATE",
    region="STRING",
    n="INT",
    price="DOUBLE",
)
TIMES = (None, dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(1970, 1, 1), dt.datetime(2026, 11, 29, 16, 30))  # noqa: DTZ001 - of a TIMESTAMP without a zone
REGIONS = (None, "", "b", "Bö", "Bönn", "東京都")
EVERY_TRANSFORM = {
    "at": ("years(at)", "month(at)", "days(at)", "hour(at)"),
    "seen": ("hours(seen)",),
    "day": ("day(day)", "day", "bucket(3, day)"),
    "region": ("region", "truncate(2, region)", "bucket(4, region)"),
    "n": ("n", "truncate(10, n)", "bucket(5, n)"),
    "id": ("bucket(4, id)", "truncate(100, id)"),
}
CASES = [
    # Iceberg has no two transforms of time of one column in one spec.
    ", ".join(each[number] for each in EVERY_TRANSFORM.values() if number < len(each))
    for number in range(4)
]


def made(tiering: Tiering, partition_by: str, **more: Any) -> TableInfo:
    properties = {
        "table.datalake.enabled": "true",
        "table.datalake.partition-by": partition_by,
        **more.pop("more_properties", {}),
    }
    columns_ = (*COLUMNS, *columns(seen_day="STRING")) if partition_by == "days(seen)" else COLUMNS
    descriptor = TableDescriptor(columns_, num_buckets=2, properties=properties, **more)
    return tiering.client.create_table(new_path(), descriptor)


def write(tiering: Tiering, table: TableInfo, ids: range) -> list[dict[str, Any]]:
    rows = []
    for number in ids:
        at = TIMES[number % len(TIMES)]
        rows.append(
            {
                "id": number - 50,
                "at": at,
                "seen": None if at is None else at.replace(tzinfo=dt.UTC),
                "day": None if at is None else at.date(),
                "region": REGIONS[number % len(REGIONS)],
                "n": None if number % 7 == 6 else number % 30 - 15,
                "price": number / 4,
            }
        )
    batch = pa.Table.from_pylist(rows, schema=arrow_schema(COLUMNS))
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    assert sum(tiering.client.write_rows(table.path, kind, [batch])) == len(rows)
    return rows


def ids_of(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def misplaced(tiering: Tiering, table: TableInfo) -> list[Mapping[str, Any]]:
    """Return the rows that are in another partition than Iceberg's own functions say, with the field that differs."""
    name, catalog = tiering.name(table), table.lake_catalog_properties["name"]
    spec = tiering.lake_table(table)._spec
    source = {number: column.name for number, column in enumerate(COLUMNS, 1)}
    wrong: list[Mapping[str, Any]] = []
    for field in spec["fields"]:
        transform, _, number = field["transform"].removesuffix("]").partition("[")
        column = source[field["source-id"]]
        value = {
            "identity": column,
            "bucket": f"{catalog}.system.bucket({number}, {column})",
            "truncate": f"{catalog}.system.truncate({number}, {column})",
        }.get(transform, f"{catalog}.system.{transform}s({column})")
        found = f"_partition.`{field['name']}`"
        query = f"SELECT id, {found} AS found, {value} AS wanted FROM {name} WHERE NOT ({found} <=> {value})"
        wrong += [{"field": field["name"], **row.asDict()} for row in tiering.spark.sql(query).collect()]
    return wrong


@pytest.mark.parametrize("partition_by", CASES)
@pytest.mark.sampled(1)
def test_each_row_is_where_iceberg_looks_for_it(tiering: Tiering, partition_by: str) -> None:
    table = made(tiering, partition_by)
    rows = write(tiering, table, range(60))
    tiering.tier(table)
    rows += write(tiering, table, range(60, 130))
    tiering.tier(table)
    lake = tiering.spark.table(tiering.name(table))
    assert sorted(row.id for row in lake.select("id").collect()) == ids_of(rows)
    assert lake.columns == [column.name for column in COLUMNS]
    assert misplaced(tiering, table) == []
    assert tiering.equal(table)


def test_values_at_the_ends_of_their_types_have_partitions(tiering: Tiering) -> None:
    table = made(tiering, "truncate(10, n), truncate(7, id), day")
    least, most = -(2**31), 2**31 - 1
    days = (dt.date(1, 1, 1), dt.date(9999, 12, 31))
    rows = [{"id": 2**32 * n, "n": n, "day": day} for n in (least, most) for day in days]
    batch = pa.Table.from_pylist(rows, schema=arrow_schema(COLUMNS))
    days_since_1970 = pa.array([-1_000_000, 3_000_000, 0, None], pa.int32()).cast(pa.date32())
    batch = batch.set_column(batch.schema.get_field_index("day"), batch.schema.field("day"), days_since_1970)
    assert sum(tiering.client.write_rows(table.path, WriteKind.APPEND, [batch])) == len(rows)
    tiering.tier(table)
    assert misplaced(tiering, table) == []
    assert tiering.spark.table(tiering.name(table)).count() == len(rows)


def test_the_combinations_of_many_fields_are_told_apart() -> None:
    names = [f"c{number}" for number in range(12)]
    kind = DataType.parse("STRING")
    transforms = [RowTransform(number, kind, PartitionTransform(name)) for number, name in enumerate(names)]
    values = [[f"v{(row * (number + 7)) % 101}" for row in range(500)] for number in range(12)]
    found = rows_by_partition([pa.array(each) for each in values], transforms)
    for partition, rows in found:
        assert {tuple(row) for row in zip(*(each.to_pylist() for each in rows), strict=True)} == {partition}


def test_readers_find_the_rows_of_a_partition(tiering: Tiering) -> None:
    table = made(tiering, "days(at), bucket(4, region)")
    rows = write(tiering, table, range(60))
    tiering.tier(table)
    metadata = tiering.lake_table(table).metadata_file
    in_partition, low = Predicate("region", "=", "Bönn"), Predicate("id", "<", -10)
    for judge in (SPARK, DUCKDB, CLICKHOUSE, PYICEBERG):
        for where, wanted in (
            (in_partition, [row for row in rows if row["region"] == "Bönn"]),
            (low, [row for row in rows if row["id"] < -10]),
        ):
            found = read(judge, metadata, columns=["id"], where=where, spark=tiering.spark)
            assert sorted(found.column("id").to_pylist()) == ids_of(wanted), judge


def test_a_partition_that_is_not_wanted_is_not_read(tiering: Tiering) -> None:
    table = made(tiering, "days(at)")
    write(tiering, table, range(60))
    tiering.tier(table)
    query = f"SELECT input_file_name() AS file FROM {tiering.name(table)}"
    everything = tiering.spark.sql(query).distinct().count()
    day = tiering.spark.sql(f"{query} WHERE at >= TIMESTAMP_NTZ '2026-11-29 00:00:00'").distinct().count()
    assert (everything, day) == (len(TIMES), 1)


def test_rounds_follow_another_partitioning(tiering: Tiering) -> None:
    table = made(tiering, "days(at)", partition_keys=())
    rows = write(tiering, table, range(20))
    tiering.tier(table)
    lake = tiering.lake_table(table)
    lake.java_table.updateSpec().removeField("at_day").addField("region").commit()
    rows += write(tiering, table, range(20, 40))
    tiering.tier(table)
    assert misplaced_since(tiering, table) == []
    assert tiering.equal(table)
    done = compact_table(tiering.spark, table, min_input_files=2)
    assert done.error is None
    assert tiering.equal(table)
    lake = tiering.lake_table(table)
    lake.java_table.updateSpec().addField("price").commit()
    rows += write(tiering, table, range(40, 50))
    # The earlier partitioning would be possible, but is not what is wanted.
    assert "DROP PARTITION FIELD `price`" in tiering.fail(table)


def test_an_option_that_comes_too_late_is_refused(tiering: Tiering) -> None:
    table = made(tiering, "region")
    write(tiering, table, range(3))
    option = "table.datalake.partition-by"
    tiering.client.alter_table(table.path, {option: "days(at)"})
    tiering.tier(table)
    with pytest.raises(FlussTieringError, match=f"{option} says how a round creates the lake table") as refused:
        tiering.client.alter_table(table.path, {option: "region"})
    assert refused.value.code is ErrorCode.INVALID_TABLE
    assert option not in tiering.client.alter_table(table.path, reset_properties=[option]).descriptor.properties


def misplaced_since(tiering: Tiering, table: TableInfo) -> list[Any]:
    """Return the rows of the newest files that are in a partition of another region."""
    rows = tiering.spark.sql(f"SELECT region, _partition.region AS found, _spec_id AS spec FROM {tiering.name(table)}")
    newest = [row for row in rows.collect() if row.spec == 1]
    assert len(newest) == 20
    return [row for row in newest if row.region != row.found]


@pytest.mark.parametrize(
    ("partition_by", "told"),
    [
        ("", "it is empty"),
        ("weeks(at)", "'weeks(at)' is no transform"),
        ("days(at, 3)", "'days(at, 3)' is no transform"),
        ("bucket(at)", "'bucket(at)' is no transform"),
        ("bucket(0, id)", "the number 0, which is not 1 to 2147483647"),
        ("days(at), hours(at)", "hours(at) comes after another one of the same column"),
        ("bucket(2, id), bucket(4, id)", "bucket(4, id) comes after another one of the same column"),
        ("days(at", "neither a column nor a transform"),
        ("days(seen)", "calls the partition field of days(seen) 'seen_day', as a column of the table"),
        ("gone", "there is no column 'gone': expected one of id, at"),
        ("price", "the column 'price' is DOUBLE, and identity expects one of BIGINT"),
        ("hours(day)", "the column 'day' is DATE, and hour expects one of TIMESTAMP"),
    ],
)
def test_a_wrong_partitioning_is_refused_at_creation(tiering: Tiering, partition_by: str, told: str) -> None:
    with pytest.raises(FlussTieringError) as refused:
        made(tiering, partition_by)
    assert refused.value.code is ErrorCode.INVALID_TABLE
    assert told in refused.value.message


@pytest.mark.parametrize("key", [(), ("id",)])
def test_the_rows_of_each_file_are_in_the_order_of_the_table(tiering: Tiering, key: tuple[str, ...]) -> None:
    table = made(tiering, "truncate(100, id)", primary_key=key, more_properties={"table.datalake.sort-by": "region, n"})
    write(tiering, table, range(60))
    tiering.tier(table)
    lake = tiering.lake_table(table)
    assert [field.direction().toString() for field in lake.java_table.sortOrder().fields()] == ["ASC", "ASC"]
    first = set(rows_of_files(tiering, table))
    for rows in rows_of_files(tiering, table).values():
        assert rows == sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in ("region", "n")])
    # A user gives the lake table another order.
    iceberg = tiering.spark._jvm.org.apache.iceberg
    nulls, ref = iceberg.NullOrder.NULLS_FIRST, iceberg.expressions.Expressions.ref
    lake.java_table.replaceSortOrder().asc(ref("at"), nulls).desc(ref("n"), nulls).commit()
    write(tiering, table, range(60, 120))
    tiering.tier(table)
    newer = {file: rows for file, rows in rows_of_files(tiering, table).items() if file not in first}
    assert newer
    for rows in newer.values():
        times = [row["at"] for row in rows]
        assert times == sorted(times, key=lambda at: (at is not None, at))
    assert tiering.equal(table)


def rows_of_files(tiering: Tiering, table: TableInfo) -> dict[str, list[dict[str, Any]]]:
    found = [
        row.file_path for row in tiering.spark.sql(f"SELECT file_path FROM {tiering.name(table)}.data_files").collect()
    ]
    return {file: pq.read_table(file.removeprefix("file:")).to_pylist() for file in found}


def test_a_wrong_sort_order_is_refused_at_creation(tiering: Tiering) -> None:
    for sort_by in ("", "gone", "n, n", "n desc"):
        with pytest.raises(FlussTieringError, match=r"expected names of the columns id, at, .*each once") as refused:
            made(tiering, "days(at)", more_properties={"table.datalake.sort-by": sort_by})
        assert refused.value.code is ErrorCode.INVALID_TABLE


def test_a_log_whose_beginning_is_gone_is_compared_from_a_snapshot_on(
    tiering: Tiering, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tiering, "region")
    starts: list[dict[TableBucket, int]] = []
    for first in range(0, 60, 20):
        write(tiering, table, range(first, first + 20))
        buckets = tiering.client.list_buckets([table.path])[table.path]
        starts.append({info.bucket: info.log_end_offset for info in buckets})
        tiering.tier(table)
    real = TieringClient.list_buckets

    def without(start: dict[TableBucket, int]) -> None:
        def list_buckets(client: TieringClient, paths: list[TablePath]) -> dict[TablePath, list[BucketInfo]]:
            found = real(client, paths)
            return {
                path: [replace(info, log_start_offset=start[info.bucket]) for info in infos]
                for path, infos in found.items()
            }

        monkeypatch.setattr(TieringClient, "list_buckets", list_buckets)

    for start in starts:
        without(start)
        assert tiering.equal(table)
    without(starts[1])
    name = tiering.name(table)
    for number in (15, 55):
        tiering.spark.sql(f"DELETE FROM {name} WHERE id = {number - 50}")
        assert not tiering.equal(table)
        lake = tiering.lake_table(table)
        lake.java_table.manageSnapshots().rollbackTo(base(tiering, table)).commit()
    without({bucket: offset + 1 for bucket, offset in starts[2].items()})
    with pytest.raises(FlussTieringError, match="its log begins at offset") as refused:
        tiering.equal(table)
    assert refused.value.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE


def base(tiering: Tiering, table: TableInfo) -> int:
    """Return the snapshot of the newest round."""
    known = tiering.client.lake_snapshot(table.path)
    assert known is not None
    return known.snapshot_id
