"""Partitions of a real Fluss cluster that a client drops during a round, without the server's knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from held_writer import HeldStage
from source_support import columns
from spark_support import Tiering, in_background, replace_stage

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.round.result import TableResult
from fluss_tiering.spark.round.stage import run_stage
from fluss_tiering.storage.fluss.rpc.calls.lake import lake_snapshot
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.calls.tables import drop_partition
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from waiting import wait_until

COLUMNS = columns(id="BIGINT NOT NULL", day="STRING NOT NULL", name="STRING")
DROPPED, KEPT = "monday", "tuesday"

Row = tuple[int, str, str]


@pytest.fixture
def tables(cluster: Tiering) -> Iterator[list[TableInfo]]:
    """Return a log table and a primary-key table, each with two partitions with rows."""
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    options: list[dict[str, Any]] = [{}, {"primary_key": ("id", "day"), "bucket_keys": ("id",)}]
    made = [
        cluster.client.create_table(
            new_path(),
            TableDescriptor(COLUMNS, num_buckets=2, partition_keys=("day",), properties=properties, **each),
        )
        for each in options
    ]
    for table in made:
        write(cluster, table, rows("first", 0, 10))
    yield made
    for table in made:
        cluster.client.drop_table(table.path, drop_untiered=True)


def rows(name: str, start: int, end: int, days: Sequence[str] = (DROPPED, KEPT)) -> list[Row]:
    return [(key, day, name) for day in days for key in range(start, end)]


def write(cluster: Tiering, table: TableInfo, written: Sequence[Row]) -> None:
    batch = pa.record_batch([list(column) for column in zip(*written, strict=True)], schema=arrow_schema(COLUMNS))
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    assert sum(cluster.client.write_rows(table.path, kind, [batch])) == len(written)


def made_again(cluster: Tiering, table: TableInfo, written: Sequence[Row]) -> bool:
    """Write to the partition. The server's first write fails, since it notices that the partition was dropped."""
    try:
        write(cluster, table, written)
    except FlussTieringError as error:
        if error.code is not ErrorCode.PARTITION_NOT_EXIST:
            raise
        return False
    return True


def merged(table: TableInfo, *written: Sequence[Row]) -> list[Row]:
    """Return the rows of the lake, which were written one after the other."""
    every = [row for each in written for row in each]
    return sorted({row[:2]: row for row in every}.values() if table.has_primary_key else every)


def of_day(day: str, written: Iterable[Row]) -> list[Row]:
    return [row for row in written if row[1] == day]


def in_lake(cluster: Tiering, table: TableInfo) -> list[Row]:
    return sorted((row.id, row.day, row.name) for row in cluster.lake(table))


def drop(cluster: Tiering, fluss: FlussClient, table: TableInfo, *, gone: bool) -> None:
    """Drop the partition. With `gone`, wait until its leaders have deleted it, which is after the answer."""
    buckets = [
        each.bucket
        for each in cluster.client.list_buckets([table.path])[table.path]
        if each.partition_values == (DROPPED,)
    ]
    fluss.call(drop_partition(table.path, {"day": DROPPED}))

    def is_there() -> bool:
        try:
            for bucket in buckets:
                fluss.call(log_offset(table.path, bucket, OffsetType.LATEST), within=1)
        except FlussTieringError:
            return False
        return True

    if gone:
        wait_until(lambda: not is_there())


def check(
    cluster: Tiering, fluss: FlussClient, table: TableInfo, result: TableResult, before: list[Row], during: list[Row]
) -> None:
    """Check the state after a round that should add `during` to `before`: it may fail, but the next one is right."""
    (newest, *_) = cluster.rounds(table)
    assert newest.state is (TieringState.FAILED if result.failed else TieringState.TIERED), newest
    assert newest.error == result.error
    lake = in_lake(cluster, table)
    kept = [] if result.failed else of_day(KEPT, during)
    assert of_day(KEPT, lake) == merged(table, of_day(KEPT, before), kept)
    # Of the dropped partition, all rows that the round was to add or none of them.
    gone = merged(table, of_day(DROPPED, before), [] if result.failed else of_day(DROPPED, during))
    assert of_day(DROPPED, lake) in (gone, of_day(DROPPED, before))

    # The partition comes back as another one of its values.
    again, more = rows("again", 5, 8, [DROPPED]), rows("more", 8, 12, [KEPT])
    wait_until(lambda: made_again(cluster, table, again))
    write(cluster, table, more)
    cluster.tier(table)
    expected = [*merged(table, of_day(KEPT, before), of_day(KEPT, during), more)]
    expected += merged(table, of_day(DROPPED, lake), again)
    assert in_lake(cluster, table) == sorted(expected)
    known = fluss.call(lake_snapshot(table.path)).log_end_offsets
    ends = cluster.log_ends(table)
    assert {bucket: offset for bucket, offset in known.items() if bucket in ends} == {
        bucket: end for bucket, end in ends.items() if bucket in known or end > 0
    }


@pytest.mark.parametrize(
    "read",
    [pytest.param(False, id="before it is read", marks=pytest.mark.long), pytest.param(True, id="after it was read")],
)
def test_a_partition_that_is_gone(
    cluster: Tiering, fluss: FlussClient, tables: list[TableInfo], monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:

    def run(spark, job, *arguments):
        if not read:
            drop(cluster, fluss, job.table, gone=True)
        written = run_stage(spark, job, *arguments)
        if read:
            drop(cluster, fluss, job.table, gone=True)
        return written

    replace_stage(monkeypatch, run)
    results = cluster.tier_all(*tables)
    monkeypatch.undo()
    for table, result in zip(tables, results, strict=True):
        # What was read is committed, without offsets for what is no more.
        assert result.failed is not read
        check(cluster, fluss, table, result, [], rows("first", 0, 10))


def test_a_partition_that_is_dropped_while_a_round_reads(
    cluster: Tiering,
    fluss: FlussClient,
    tables: list[TableInfo],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for result in cluster.tier_all(*tables):
        assert result.error is None
    during = rows("second", 5, 15)
    for table in tables:
        write(cluster, table, during)
    stage = HeldStage(tmp_path, monkeypatch)
    running = in_background(cluster, *tables)
    stage.wait()
    monkeypatch.undo()
    for table in tables:
        drop(cluster, fluss, table, gone=False)
    stage.go()
    for table, result in zip(tables, running.result(), strict=True):
        check(cluster, fluss, table, result, rows("first", 0, 10), during)
