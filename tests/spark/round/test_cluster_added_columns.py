"""Columns that are added to tiered tables of a Fluss 1.0 cluster, which alters the lake table first and then its own.

Rows of several schemas are read in one round, from logs and from KV snapshots. Readers that are not ours judge the
lake.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from every_type import NESTED, NOON, VALUES, plain
from fluss_tables import add_column
from held_writer import HeldStage
from pyspark.sql import functions as sf
from source_support import columns, load
from spark_support import Tiering, in_background, served

from engine_support import new_path
from fluss_support import FlussCluster
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.spark.audit.verify import verify_table
from fluss_tiering.spark.maintenance.compact import CompactionOptions, compact_table
from fluss_tiering.spark.round import round as round_module
from fluss_tiering.storage.fluss.rpc.calls.tables import table as table_call
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from judges import CLICKHOUSE, DUCKDB, PYICEBERG, SPARK, Predicate, read
from needs import needs
from waiting import WAIT_S, wait_until

pytestmark = pytest.mark.fluss_versions("1.0")

COLUMNS = columns(id="INT NOT NULL", name="STRING")
WAIT = {"claim_timeout_s": 60}

Rows = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
@needs("server")
def cluster(fluss_cluster: FlussCluster, spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiering]:
    with served(fluss_cluster.bootstrap, tmp_path_factory.mktemp("added-columns"), spark) as tiering:
        yield tiering


@pytest.fixture(params=["log", "keyed"])
def table(request: pytest.FixtureRequest, cluster: Tiering) -> Iterator[TableInfo]:
    key = {"primary_key": ("id",), "bucket_keys": ("id",)} if request.param == "keyed" else {}
    options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    made = cluster.client.create_table(new_path(), TableDescriptor(COLUMNS, num_buckets=2, properties=options, **key))
    yield made
    cluster.client.drop_table(made.path, drop_untiered=True)


def add(fluss: FlussClient, table: TableInfo, name: str, kind: str) -> TableInfo:
    """Add a column, and return the table with it."""
    return add_column(fluss, fluss.call(table_call(table.path)), name, kind).info


def write(cluster: Tiering, table: TableInfo, rows: Rows, **deleted: Any) -> None:
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    batch = pa.Table.from_pylist(
        [{"id": key, **row} for key, row in rows.items()], schema=arrow_schema(table.descriptor.columns)
    )
    assert sum(cluster.client.write_rows(table.path, kind, [batch])) == len(rows)


def metadata_of(cluster: Tiering, table: TableInfo) -> str:
    lake = IcebergCatalogs(cluster.spark).find_table(table)
    assert lake is not None
    return str(lake.java_table.operations().current().metadataFileLocation())


def in_lake(cluster: Tiering, table: TableInfo) -> list[dict[str, Any]]:
    names = [column.name for column in table.descriptor.columns]
    return [{name: plain(row[name]) for name in names} for row in cluster.lake(table)]


def equal(cluster: Tiering, table: TableInfo) -> bool:
    return verify_table(cluster.client, cluster.spark, table, target=cluster.target).equal


def compact(cluster: Tiering, table: TableInfo) -> None:
    done = compact_table(cluster.spark, table, CompactionOptions(min_input_files=2))
    assert done.error is None
    assert done.after.data_files < done.before.data_files


def filled(rows: Rows, table: TableInfo) -> list[dict[str, Any]]:
    """Return the rows with null in the columns that they lack, in the order of their ids."""
    names = [column.name for column in table.descriptor.columns if column.name != "id"]
    return [{"id": key, **{name: row.get(name) for name in names}} for key, row in sorted(rows.items())]


@pytest.mark.long
def test_columns_of_every_type_are_added_between_rounds_and_within_one(
    cluster: Tiering, fluss: FlussClient, table: TableInfo
) -> None:
    rows: Rows = {key: {"name": f"old {key}"} for key in range(10)}
    write(cluster, table, rows)
    cluster.tier(table, **WAIT)
    types = {**VALUES, **NESTED}
    present = table
    for number, (kind, values) in enumerate(types.items()):
        present = add(fluss, present, f"c{number}", kind)
        new = {10 + 2 * number + turn: {"name": "new", f"c{number}": values[turn]} for turn in (0, 1)}
        if number % 6 == 0:
            # Rows of older schemas and of this one are then in one range of the log.
            new |= {number: {"name": "again", f"c{number}": values[0]}} if table.has_primary_key else {}
            rows |= new
            write(cluster, present, new)
        if number == len(types) // 2:
            cluster.tier(table, **WAIT)
            assert in_lake(cluster, present) == filled(rows, present)
    last = {1000: {f"c{number}": values[1] for number, values in enumerate(types.values())}}
    rows |= last
    write(cluster, present, last)
    cluster.tier(table, **WAIT)

    assert in_lake(cluster, present) == filled(rows, present)
    assert [plain(row) for row in load(cluster, present).orderBy("id").collect()] == filled(rows, present)
    assert equal(cluster, present)
    compact(cluster, present)
    assert in_lake(cluster, present) == filled(rows, present)
    assert equal(cluster, present)


FILTERED = {
    "INT": ("=", 7),
    "STRING": (">=", "m"),
    "DECIMAL(12, 2)": ("<", Decimal("0.00")),
    "TIMESTAMP(6)": (">", NOON),
    "DATE": ("=", NOON.date()),
    "DOUBLE": ("<=", -0.5),
}
MATCHING: dict[str, tuple[Any, Any]] = {
    "INT": (7, 8),
    "STRING": ("n", "a"),
    "DECIMAL(12, 2)": (Decimal("-1.50"), Decimal("1.50")),
    "TIMESTAMP(6)": (NOON + dt.timedelta(microseconds=1), NOON),
    "DATE": (NOON.date(), NOON.date() + dt.timedelta(1)),
    "DOUBLE": (-1.0, 1.0),
}


@pytest.mark.long
def test_readers_find_rows_by_added_columns(cluster: Tiering, fluss: FlussClient, table: TableInfo) -> None:
    old, hit, miss = range(5), range(5, 8), range(8, 30)
    write(cluster, table, {key: {"name": "old"} for key in old})
    cluster.tier(table, **WAIT)
    present = table
    for number, kind in enumerate(FILTERED):
        present = add(fluss, present, f"c{number}", kind)
    names = {kind: f"c{number}" for number, kind in enumerate(FILTERED)}
    write(cluster, present, {key: {names[kind]: MATCHING[kind][0] for kind in names} for key in hit})
    cluster.tier(table, **WAIT)
    write(cluster, present, {key: {names[kind]: MATCHING[kind][1] for kind in names} for key in miss})
    cluster.tier(table, **WAIT)

    metadata = metadata_of(cluster, present)
    judges = [DUCKDB, CLICKHOUSE, SPARK] + ([] if table.has_primary_key else [PYICEBERG])
    for kind, (operator, value) in FILTERED.items():
        for judge in judges:
            for push_down in (True, False):
                matching = read(
                    judge,
                    metadata,
                    Predicate(names[kind], operator, value),
                    columns=["id"],
                    push_down=push_down,
                    spark=cluster.spark,
                )
                assert sorted(matching.column("id").to_pylist()) == list(hit), (kind, judge, push_down)
                empty = read(
                    judge,
                    metadata,
                    Predicate(names[kind], "IS NULL"),
                    columns=["id"],
                    push_down=push_down,
                    spark=cluster.spark,
                )
                assert sorted(empty.column("id").to_pylist()) == list(old), (kind, judge, push_down)
        found = load(cluster, present).where(sf.col(names[kind]) == sf.lit(MATCHING[kind][0])).select("id").collect()
        assert sorted(row.id for row in found) == list(hit), kind
    nothing = load(cluster, present).where(sf.isnull("c0")).select("id").collect()
    assert sorted(row.id for row in nothing) == list(old)


@pytest.mark.sampled(1)
def test_a_column_that_only_the_lake_has_is_no_obstacle_and_is_filled_once_the_alter_is_repeated(
    cluster: Tiering, fluss: FlussClient, table: TableInfo
) -> None:
    """A coordinator that dies between its two steps leaves such a lake table."""
    write(cluster, table, {1: {"name": "first"}})
    cluster.tier(table, **WAIT)
    cluster.spark.sql(f"ALTER TABLE {cluster.name(table)} ADD COLUMN extra BIGINT AFTER name")
    write(cluster, table, {2: {"name": "between"}})
    cluster.tier(table, **WAIT)
    assert [tuple(row)[:3] for row in cluster.lake(table)] == [(1, "first", None), (2, "between", None)]
    assert equal(cluster, table)

    present = add(fluss, table, "extra", "BIGINT")

    write(cluster, present, {3: {"name": "after", "extra": 2**62}})
    cluster.tier(table, **WAIT)
    assert [tuple(row)[:3] for row in cluster.lake(table)] == [
        (1, "first", None),
        (2, "between", None),
        (3, "after", 2**62),
    ]
    assert equal(cluster, present)


def test_rows_with_a_column_that_is_added_before_the_ends_are_read_keep_its_values(
    cluster: Tiering, fluss: FlussClient, table: TableInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cluster, table, {1: {"name": "old"}})
    recovered = round_module.recover
    opened: list[int] = []

    def alter_once(*arguments: Any) -> Any:
        opened.append(len(opened))
        if len(opened) == 1:
            present = add(fluss, table, "added", "STRING")
            write(cluster, present, {2: {"name": "new", "added": "kept"}})
        return recovered(*arguments)

    monkeypatch.setattr(round_module, "recover", alter_once)
    result = cluster.tier(table, **WAIT)

    assert len(opened) == 2, "the lake table is opened again with the column"
    assert result.stats.rows == 2
    assert [tuple(row)[:3] for row in cluster.lake(table)] == [(1, "old", None), (2, "new", "kept")]


@pytest.mark.sampled(1)
def test_a_column_that_is_added_while_a_round_writes_is_tiered_by_the_next_one(
    cluster: Tiering, fluss: FlussClient, table: TableInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cluster, table, {key: {"name": "old"} for key in range(10)})
    with monkeypatch.context() as patched:
        held = HeldStage(tmp_path, patched)
        running = in_background(cluster, table, **WAIT)
        held.wait()
        present = add(fluss, table, "added", "ROW<a INT, b STRING>")
        write(cluster, present, {key: {"name": "new", "added": {"a": key, "b": "b"}} for key in range(5, 15)})
        held.go()
        (result,) = running.result(WAIT_S)
    assert result.error is None
    assert result.stats.rows == 10
    assert {(row.id, row.name, row.added) for row in cluster.lake(table)} == {(key, "old", None) for key in range(10)}

    cluster.tier(table, **WAIT)

    expected = [(key, "new", {"a": key, "b": "b"}) for key in range(5, 15)]
    expected += [(key, "old", None) for key in range(5 if table.has_primary_key else 10)]
    lake = [(row.id, row.name, plain(row.added)) for row in cluster.lake(table)]
    assert sorted(lake, key=repr) == sorted(expected, key=repr)
    assert equal(cluster, present)


@pytest.mark.parametrize("table", ["keyed"], indirect=True)
def test_a_first_round_reads_kv_snapshots_with_rows_of_several_schemas(
    cluster: Tiering, fluss: FlussClient, table: TableInfo
) -> None:
    rows: Rows = {key: {"name": f"old {key}"} for key in range(40)}
    write(cluster, table, rows)
    present = add(fluss, table, "number", "BIGINT")
    newer: Rows = {key: {"name": f"new {key}", "number": key} for key in range(30, 60)}
    write(cluster, present, newer)
    rows |= newer
    present = add(fluss, present, "part", "ROW<a INT, b ARRAY<STRING>>")
    newest: Rows = {key: {"number": -key, "part": {"a": key, "b": ["x", None]}} for key in range(50, 70)}
    write(cluster, present, newest)
    rows |= newest

    def in_snapshots() -> bool:
        infos = cluster.client.list_buckets([table.path])[table.path]
        latest = [info.latest_kv_snapshot for info in infos]
        return all(
            snapshot is not None and snapshot.log_offset == info.log_end_offset
            for snapshot, info in zip(latest, infos, strict=True)
        )

    wait_until(in_snapshots)
    cluster.tier(table, **WAIT)

    assert in_lake(cluster, present) == filled(rows, present)
    assert {row["__offset"] for row in cluster.lake(table)} == {-1}, "all rows are from KV snapshots"
    assert equal(cluster, present)
    scanned = pa.Table.from_batches(list(cluster.client.scan(present)), arrow_schema(present.descriptor.columns))
    assert sorted(scanned.to_pylist(), key=lambda row: row["id"]) == filled(rows, present)
