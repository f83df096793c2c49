"""Flink SQL's union read: the lake snapshot that we wrote, and from there on the cluster's log."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from written_rows import descriptor, printed, rows

from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.spark.maintenance.publish import publish_table

pytestmark = [pytest.mark.long, pytest.mark.system, pytest.mark.timeout(900)]


def test_union_read_of_a_log_table(client, tier, readers, fluss_cluster):
    path = TablePath("readers", "log_union")
    client.create_table(path, descriptor(primary_key=False))
    tiered, only_in_the_log = rows(range(300)), rows(range(300, 350))
    list(client.write_rows(path, WriteKind.APPEND, [tiered]))
    tier(path)
    list(client.write_rows(path, WriteKind.APPEND, [only_in_the_log]))
    query = f"SELECT * FROM fluss.{path}"
    assert readers.query(fluss_cluster, query).values == printed(tiered) + printed(only_in_the_log)
    # The first rows come from the lake: without one of its files they cannot be read.
    warehouse = urlparse(fluss_cluster.lake_catalog["warehouse"]).path
    gone, *_ = Path(warehouse, path.database, path.table, "data").rglob("*.parquet")
    gone.unlink()
    with pytest.raises(AssertionError, match=gone.name):
        readers.query(fluss_cluster, query)


def test_union_read_of_a_primary_key_table(client, tier, readers, fluss_cluster):
    # In streaming mode: in batch mode Fluss 0.9.1 demands readers that sort, which it has for Paimon alone.
    path = TablePath("readers", "keyed_union")
    client.create_table(path, descriptor(primary_key=True))
    list(client.write_rows(path, WriteKind.UPSERT, [rows(range(300))]))
    tier(path)
    list(client.write_rows(path, WriteKind.UPSERT, [rows(range(200, 250), seed=1)]))
    list(client.write_rows(path, WriteKind.DELETE, [rows(range(10))]))
    tier(path)
    list(client.write_rows(path, WriteKind.UPSERT, [rows(range(290, 310), seed=2)]))
    list(client.write_rows(path, WriteKind.DELETE, [rows(range(10, 20))]))
    live = (rows(range(20, 200)), rows(range(200, 250), seed=1), rows(range(250, 290)), rows(range(290, 310), seed=2))
    # 290 rows of the lake; then 10 rows changed, each from and to what, 10 new ones and 10 deleted.
    read = readers.follow(fluss_cluster, f"SELECT * FROM fluss.{path}", 290 + 20 + 10 + 10)
    assert read.live_values == printed(pa.concat_tables(live))


def test_union_read_of_a_table_whose_rounds_commit_to_a_branch(client, tier, readers, fluss_cluster, spark):
    path = TablePath("readers", "branch_union")
    options = {"fluss.table.datalake.commit-branch": "audit"}
    table = client.create_table(path, descriptor(primary_key=False, **options))
    parts = [rows(range(start, start + 100)) for start in (0, 100, 200)]
    expected = printed(parts[0])
    list(client.write_rows(path, WriteKind.APPEND, [parts[0]]))
    tier(path)
    # Fluss 0.9.1 reads no table in batch mode of which it knows no lake snapshot.
    for part in parts[1:]:
        assert publish_table(client, spark, table).error is None
        list(client.write_rows(path, WriteKind.APPEND, [part]))
        tier(path)
        expected += printed(part)
        # What is in the lake and was not published comes from the log.
        assert readers.query(fluss_cluster, f"SELECT * FROM fluss.{path}").values == expected
