"""Fluss's own Java reader of lake tables accepts what we wrote, and reads what was written to the cluster."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from written_rows import descriptor, printed, rows

from fluss_tiering.model.table import TablePath, WriteKind

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


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
    # The reader goes on in the log where the snapshot ends: at these offsets of the buckets.
    ends = {each.bucket.bucket: each.log_end_offset for each in client.list_buckets([path])[path]}
    assert json.loads(read.head.partition(" ")[2]) == [ends[number] for number in sorted(ends)]
    assert sorted(offset for (_, offset, _), _ in read.rows) == sorted(
        offset for end in ends.values() for offset in range(end)
    )
    assert all(timestamp > 0 for (_, _, timestamp), _ in read.rows)


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
