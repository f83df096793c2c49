"""Fluss's own Java reader of lake tables accepts what we wrote, and reads what was written to the cluster."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from fluss_tables import add_column
from written_rows import COLUMNS, descriptor, printed, rows

from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.storage.fluss.rpc.calls.tables import table

pytestmark = [pytest.mark.long, pytest.mark.system, pytest.mark.timeout(900)]


def log_goes_on_at(read) -> dict[tuple[int | None, int], int]:
    """Where the reader goes on in the log, behind the snapshot: by partition and bucket."""
    return {(partition, bucket): offset for partition, bucket, offset in json.loads(read.head.partition(" ")[2])}


def log_ends(client: TieringClient, path: TablePath) -> dict[tuple[int | None, int], int]:
    """Where the log ends, by partition and bucket; without empty ones, which the cluster is not told of either."""
    buckets = client.list_buckets([path])[path]
    return {
        (each.bucket.partition_id, each.bucket.bucket): each.log_end_offset for each in buckets if each.log_end_offset
    }


def test_rows_of_a_log_table(client, tier, readers, fluss_cluster):
    path = TablePath("readers", "log_rows")
    client.create_table(path, descriptor(primary_key=False))
    first, second = rows(range(400)), rows(range(400, 600))
    list(client.write_rows(path, WriteKind.APPEND, [first]))
    tier(path)
    list(client.write_rows(path, WriteKind.APPEND, [second]))
    tier(path)
    read = readers.lake_rows(fluss_cluster, path)
    assert read.values == printed(first) + printed(second)
    ends = log_ends(client, path)
    assert log_goes_on_at(read) == ends
    assert sorted(offset for (_, offset, *_), _ in read.rows) == sorted(
        offset for end in ends.values() for offset in range(end)
    )
    assert all(timestamp > 0 for (_, _, timestamp, _), _ in read.rows)


def test_rows_of_a_primary_key_table(client, tier, readers, fluss_cluster):
    path = TablePath("readers", "keyed_rows")
    client.create_table(path, descriptor(primary_key=True))
    list(client.write_rows(path, WriteKind.UPSERT, [rows(range(500))]))
    tier(path)
    list(client.write_rows(path, WriteKind.UPSERT, [rows(range(450, 550), seed=1)]))
    list(client.write_rows(path, WriteKind.DELETE, [rows(range(20))]))
    tier(path)
    list(client.write_rows(path, WriteKind.UPSERT, [rows(range(10, 30), seed=2)]))
    tier(path)
    read = readers.lake_rows(fluss_cluster, path)
    live = rows(range(30, 450)), rows(range(450, 550), seed=1), rows(range(10, 30), seed=2)
    assert read.values == printed(pa.concat_tables(live))


def test_rows_of_a_partitioned_log_table(client, tier, readers, fluss_cluster):
    path = TablePath("readers", "partitioned_log_rows")
    client.create_table(path, descriptor(primary_key=False, partition_keys=("region", "zone")))
    first = rows(range(100), region="north", zone="1"), rows(range(100, 150), region="north", zone="2")
    second = rows(range(150, 200), region="north", zone="1"), rows(range(200, 260), region="south", zone="1")
    for written in (first, second):
        list(client.write_rows(path, WriteKind.APPEND, written))
        tier(path)
    read = readers.lake_rows(fluss_cluster, path)
    assert read.values == printed(pa.concat_tables([*first, *second]))
    assert log_goes_on_at(read) == log_ends(client, path)
    # The reader tells Flink of each file's partition, whose values its rows have too.
    assert {(*partition, *values[-2:]) for (*_, partition), values in read.rows} == {
        ("north", "1", "north", "1"),
        ("north", "2", "north", "2"),
        ("south", "1", "south", "1"),
    }


def test_rows_of_a_partitioned_primary_key_table(client, tier, readers, fluss_cluster):
    path = TablePath("readers", "partitioned_keyed_rows")
    client.create_table(path, descriptor(primary_key=True, partition_keys=("region",)))
    # The same ids in each partition: what changes one leaves the others alone.
    list(client.write_rows(path, WriteKind.UPSERT, [rows(range(100), region=region) for region in ("north", "south")]))
    tier(path)
    list(client.write_rows(path, WriteKind.UPSERT, [rows(range(50, 120), seed=1, region="north")]))
    list(client.write_rows(path, WriteKind.UPSERT, [rows(range(30), seed=1, region="west")]))
    list(client.write_rows(path, WriteKind.DELETE, [rows(range(20), region="south")]))
    tier(path)
    read = readers.lake_rows(fluss_cluster, path)
    live = (
        *(rows(range(50), region="north"), rows(range(50, 120), seed=1, region="north")),
        *(rows(range(20, 100), region="south"), rows(range(30), seed=1, region="west")),
    )
    assert read.values == printed(pa.concat_tables(live))
    assert {(*partition, values[-1]) for (*_, partition), values in read.rows} == {
        (region, region) for region in ("north", "south", "west")
    }
    assert log_goes_on_at(read) == log_ends(client, path)


@pytest.mark.fluss_versions("1.0")
@pytest.mark.parametrize("primary_key", [False, True], ids=["log", "keyed"])
def test_rows_with_columns_that_were_added_to_a_tiered_table(client, tier, readers, fluss, fluss_cluster, primary_key):
    path = TablePath("readers", f"added_columns_{'keyed' if primary_key else 'log'}")
    kind = WriteKind.UPSERT if primary_key else WriteKind.APPEND
    everything = descriptor(primary_key=primary_key)
    client.create_table(path, replace(everything, columns=COLUMNS[:1]))
    first, second = rows(range(100)), rows(range(50 if primary_key else 100, 200), seed=1)
    list(client.write_rows(path, kind, [first.select(["id"])]))
    tier(path)
    for column in COLUMNS[1:]:
        add_column(fluss, fluss.call(table(path)), column.name, str(column.data_type))
    list(client.write_rows(path, kind, [second]))
    tier(path)
    old = pa.Table.from_pylist(first.slice(0, 50 if primary_key else 100).select(["id"]).to_pylist(), second.schema)
    read = readers.lake_rows(fluss_cluster, path)
    assert read.values == printed(pa.concat_tables([old, second]))
    assert log_goes_on_at(read) == log_ends(client, path)
