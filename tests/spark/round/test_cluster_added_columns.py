"""Columns that are added to tiered tables of a Fluss 1.0 cluster, which alters the lake table first and then its own.

Rows of several schemas are read in one round, from logs and from KV snapshots. Readers that are not ours judge the
lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from every_type import NESTED, VALUES, plain
from fluss_tables import add_column
from held_writer import HeldStage
from source_support import columns, load
from spark_support import Tiering, in_background

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.storage.fluss.rpc.calls.tables import table as table_call
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from waiting import WAIT_S, wait_until

pytestmark = pytest.mark.fluss_versions("1.0")

COLUMNS = columns(id="INT NOT NULL", name="STRING")
WAIT = {"claim_timeout_s": 60}

Rows = dict[int, dict[str, Any]]


@pytest.fixture(params=["log", "keyed"])
def table(request: pytest.FixtureRequest, cluster: Tiering) -> Iterator[TableInfo]:
    key = {"primary_key": ("id",), "bucket_keys": ("id",)} if request.param == "keyed" else {}
    options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    made = cluster.client.create_table(new_path(), TableDescriptor(COLUMNS, num_buckets=2, properties=options, **key))
    yield made
    cluster.client.drop_table(made.path, drop_untiered=True)


def add(fluss: FlussClient, table: TableInfo, name: str, kind: str) -> TableInfo:
    """Add a column, and return the table with it."""
    return add_column(fluss, fluss.call(table_call(table.path)), name, kind)


def write(cluster: Tiering, table: TableInfo, rows: Rows, **deleted: Any) -> None:
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    batch = pa.Table.from_pylist(
        [{"id": key, **row} for key, row in rows.items()], schema=arrow_schema(table.descriptor.columns)
    )
    assert sum(cluster.client.write_rows(table.path, kind, [batch])) == len(rows)


def in_lake(cluster: Tiering, table: TableInfo) -> list[dict[str, Any]]:
    names = [column.name for column in table.descriptor.columns]
    return [{name: plain(row[name]) for name in names} for row in cluster.lake(table)]


def compact(cluster: Tiering, table: TableInfo) -> None:
    done = compact_table(cluster.spark, table, min_input_files=2)
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
    assert cluster.equal(present)
    compact(cluster, present)
    assert in_lake(cluster, present) == filled(rows, present)
    assert cluster.equal(present)


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
    assert cluster.equal(table)

    present = add(fluss, table, "extra", "BIGINT")

    write(cluster, present, {3: {"name": "after", "extra": 2**62}})
    cluster.tier(table, **WAIT)
    assert [tuple(row)[:3] for row in cluster.lake(table)] == [
        (1, "first", None),
        (2, "between", None),
        (3, "after", 2**62),
    ]
    assert cluster.equal(present)


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
    assert cluster.equal(present)


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
    assert cluster.equal(present)
    scanned = pa.Table.from_batches(list(cluster.client.scan(present)), arrow_schema(present.descriptor.columns))
    assert sorted(scanned.to_pylist(), key=lambda row: row["id"]) == filled(rows, present)
