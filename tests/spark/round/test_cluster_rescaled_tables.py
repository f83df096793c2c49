"""Rounds, audits and queries of tables whose number of buckets was changed, as only clusters of Fluss 1.0.0 can do it.

The server's answers from a real cluster are changed to those of such a one (see `rescaled`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from rescaled import Rescaled
from source_support import columns, load, partition_count
from spark_support import Tiering

from engine_support import ServerThread, new_path
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.server.backends.cluster import connect
from needs import needs

COLUMNS = columns(id="BIGINT NOT NULL", day="STRING NOT NULL", name="STRING")
OPTIONS = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
WAIT = {"claim_timeout_s": 60}
COUNTS = {"old": 2, "new": 3}


@pytest.fixture
@needs("server")
def cluster(fluss_cluster: FlussCluster, spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiering]:
    def rescaled(bootstrap: str, **arguments) -> Rescaled:
        client = Rescaled(bootstrap, **arguments)
        client.of_partition = COUNTS
        return client

    monkeypatch.setattr(connect, "FlussClient", rescaled)
    with (
        ServerThread(tmp_path / "server", fluss=fluss_cluster.bootstrap, metrics_enabled=False) as server,
        TieringClient(server.target) as client,
    ):
        yield Tiering(client, spark, server.target)


def make(cluster: Tiering, **keys) -> TableInfo:
    """Create a table of three buckets, while the answers say one, and for each partition its number of `COUNTS`."""
    descriptor = TableDescriptor(COLUMNS, partition_keys=("day",), num_buckets=3, properties=OPTIONS, **keys)
    made = cluster.client.create_table(new_path(), descriptor)
    assert (made.descriptor.num_buckets, made.bucket_count_epoch) == (1, 1)
    for day in COUNTS:
        write(cluster, made, day, range(20_000))
    return made


def write(cluster: Tiering, table: TableInfo, day: str, ids: range) -> None:
    rows = pa.table([list(ids), [day] * len(ids), ["row"] * len(ids)], schema=arrow_schema(COLUMNS))
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    assert sum(cluster.client.write_rows(table.path, kind, [rows])) == len(ids)


def test_a_log_table_is_tiered_verified_and_queried_with_the_number_of_each_partition(cluster: Tiering) -> None:
    table = make(cluster)
    used = {
        (info.partition_values, info.bucket.bucket) for info in cluster.client.list_buckets([table.path])[table.path]
    }
    assert used == {((day,), bucket) for day, count in COUNTS.items() for bucket in range(count)}

    assert cluster.tier(table, **WAIT).stats.rows == 40_000

    lake = cluster.spark.table(cluster.name(table))
    assert {(row.day, row["__bucket"]) for row in lake.select("day", "__bucket").distinct().collect()} == {
        (day, bucket) for (day,), bucket in used
    }
    assert lake.select("id", "day").distinct().count() == 40_000
    audit = cluster.audit(table)
    assert audit.equal
    assert load(cluster, table).count() == 40_000


@pytest.mark.long
def test_a_primary_key_table_is_read_and_its_rounds_are_refused_by_name(cluster: Tiering) -> None:
    table = make(cluster, primary_key=("id", "day"), bucket_keys=("id",))
    other = make(cluster)

    frame = load(cluster, table)
    assert frame.count() == 40_000
    for key in range(0, 200, 17):
        found = frame.where(sf.col("id") == key)
        assert sorted(row.day for row in found.collect()) == ["new", "old"]
        assert partition_count(found) == len(COUNTS), "of each partition only the bucket with the key is read"
    assert sum(rows.num_rows for rows in cluster.client.scan(table)) == 40_000
    (result, gone_on) = cluster.tier_all(table, other, **WAIT)
    assert gone_on.error is None
    assert f"the number of buckets of table {table.path} was changed (bucket count epoch 1)" in result.error
    assert "expected a table that was never changed so, or one without a bucket key" in result.error
    with pytest.raises(FlussTieringError, match="was changed") as refused:
        cluster.audit(table)
    assert refused.value.code is ErrorCode.INVALID_TABLE


def test_a_scan_of_a_table_without_partitions_reads_the_buckets_that_there_are(cluster: Tiering) -> None:
    descriptor = TableDescriptor(COLUMNS, ("id",), ("id",), num_buckets=3, properties=OPTIONS)
    table = cluster.client.create_table(new_path(), descriptor)
    write(cluster, table, "any", range(100))
    assert (table.descriptor.num_buckets, table.bucket_count_epoch) == (1, 1)
    assert sum(rows.num_rows for rows in cluster.client.scan(table)) == 100
    assert load(cluster, table).where("id = 42").count() == 1
