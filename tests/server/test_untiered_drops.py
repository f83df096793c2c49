"""What is not in the lake is dropped only if the caller says so, and is counted then: E6."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from engine_support import ServerThread, claimed, log_ends, new_path, new_table, status, tier
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.model.tiering import HeartbeatEntry
from metrics_support import scrape
from waiting import wait_until

METRIC = "fluss_tiering_dropped_untiered_records_total"


@contextmanager
def serving(folder: Path) -> Iterator[tuple[ServerThread, TieringClient]]:
    with ServerThread(folder) as running, TieringClient(running.target) as client:
        yield running, client


def days(client: TieringClient, *, enabled: str = "true", primary_key: bool = False) -> TableInfo:
    columns = (Column("day", DataType.parse("STRING NOT NULL")), Column("id", DataType.parse("INT NOT NULL")))
    keys = ("day", "id") if primary_key else ()
    options = {"table.datalake.enabled": enabled, "table.datalake.freshness": "1h"}
    return client.create_table(new_path(), TableDescriptor(columns, keys, properties=options, partition_keys=("day",)))


def put(client: TieringClient, table: TableInfo, day: str, count: int) -> None:
    rows = pa.table({"day": [day] * count, "id": pa.array(range(count), pa.int32())})
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    assert sum(client.write_rows(table.path, kind, [rows])) == count


def counted(running: ServerThread, path: TablePath) -> float:
    samples = scrape(running.server.metrics_port).get(METRIC, [])
    return sum(number for labels, number in samples if labels == {"database": path.database, "table": path.table})


def refused(client: TieringClient, table: TableInfo, day: str | None) -> str:
    drop = partial(client.drop_table, table.path) if day is None else partial(client.drop_partition, table.path, [day])
    with pytest.raises(FlussTieringError) as error:
        drop()
    assert error.value.code is ErrorCode.INVALID_TIERING_STATE
    return error.value.message


@pytest.mark.parametrize("primary_key", [False, True])
def test_a_drop_of_what_is_not_in_the_lake_is_refused_and_counted(tmp_path: Path, primary_key: bool) -> None:  # E6
    with serving(tmp_path) as (running, client):
        table = days(client, primary_key=primary_key)
        put(client, table, "mon", 3)
        put(client, table, "tue", 2)
        told = refused(client, table, "mon")
        assert told.startswith(f"partition mon of {table.path} has 3 log records that are not in the lake: expected")
        assert f"`fluss-tiering tier {table.path}`" in told
        assert "--drop-untiered" in told
        tier(client, table)
        assert client.drop_partition(table.path, ["mon"]) == 0, "all of it is in the lake"
        assert status(client, table).dropped_untiered_records == 0

        put(client, table, "wed", 5)
        put(client, table, "thu", 7)
        assert refused(client, table, "wed").startswith(f"partition wed of {table.path} has 5 log records")
        assert client.drop_partition(table.path, ["wed"], drop_untiered=True) == 5
        after = status(client, table)
        assert after.dropped_untiered_records == 5
        assert after.dropped_untiered_time is not None
        assert after.records_waiting == 7
        assert counted(running, table.path) == 5
    with serving(tmp_path) as (running, client):
        assert status(client, table) == after, "it is kept over a restart"
        assert refused(client, table, None).startswith(f"{table.path} has 7 log records")
        assert client.drop_table(table.path, drop_untiered=True) == 7
        assert counted(running, table.path) == 7


def test_a_drop_of_what_a_branch_holds_names_the_command_that_publishes_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, client):
        table = days(client)
        client.alter_table(table.path, {"table.datalake.commit-branch": "audit"})
        put(client, table, "mon", 3)
        told = refused(client, table, "mon")
        assert "3 log records that are not in main of the lake table: expected it to be published" in told
        assert f"`fluss-tiering tier {table.path}` and `fluss-tiering publish {table.path}` first" in told


def test_records_that_came_after_tiering_was_switched_off_count_too(tmp_path: Path) -> None:  # E6
    with serving(tmp_path) as (_, client):
        table = days(client)
        put(client, table, "mon", 3)
        tier(client, table)
        client.alter_table(table.path, {"table.datalake.enabled": "false"})
        put(client, table, "mon", 2)
        assert refused(client, table, "mon").startswith(f"partition mon of {table.path} has 2 log records")
        assert client.drop_partition(table.path, ["mon"], drop_untiered=True) == 2
        put(client, table, "tue", 4)
        assert refused(client, table, None).startswith(f"{table.path} has 4 log records")
        assert client.drop_table(table.path, drop_untiered=True) == 4


def test_a_table_that_is_not_tiered_is_dropped_as_ever(tmp_path: Path) -> None:  # E6
    with serving(tmp_path) as (running, client):
        table = days(client, enabled="false")
        put(client, table, "mon", 3)
        put(client, table, "tue", 3)
        assert client.drop_partition(table.path, ["mon"]) == 0
        assert client.drop_table(table.path) == 0
        assert client.drop_table(table.path, ignore_if_not_exists=True) == 0
        assert counted(running, table.path) == 0


@pytest.mark.slow
def test_what_a_running_round_takes_is_not_lost(tmp_path: Path) -> None:  # E6
    with serving(tmp_path) as (running, client):
        table = days(client)
        put(client, table, "mon", 3)
        held = claimed(client, table)
        ends = log_ends(client, table)
        put(client, table, "mon", 2)
        assert client.drop_partition(table.path, ["mon"], drop_untiered=True) == 5
        assert status(client, table).dropped_untiered_records == 0, "the round may have them"
        path = client.prepare_lake_snapshot(table, held.tiering_epoch, ends)
        client.commit_lake_snapshot(table, held.tiering_epoch, 1, ends, path, "commit")
        client.heartbeat(finished=[HeartbeatEntry(held.table_id, held.tiering_epoch)])
        wait_until(lambda: status(client, table).dropped_untiered_records)
        assert status(client, table).dropped_untiered_records == 2
        assert counted(running, table.path) == 2


def test_a_table_that_cannot_be_counted_is_dropped_only_with_the_flag(tmp_path: Path) -> None:  # E6
    with serving(tmp_path) as (_, client):
        table = new_table(client, [1])
    (segment,) = (tmp_path / "tables" / "db").glob(f"{table.path.table}-*/log-0/*.log")
    segment.write_bytes(segment.read_bytes()[:-3])
    with serving(tmp_path) as (_, client):
        with pytest.raises(FlussTieringError, match=r"cannot be counted: .*--drop-untiered") as error:
            client.drop_table(table.path)
        assert error.value.code is ErrorCode.CORRUPT_DATA
        assert client.drop_table(table.path, drop_untiered=True) is None
