"""Rounds of tables whose KV snapshots have tagged values, or a layout that is not known, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fluss_tables import descriptor, new_table_of_later, rows, snapshot_behind, upsert
from spark_support import Tiering, named, served
from tagged_values import replace_snapshot, tagged_files

from fluss_support import FlussCluster
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.audit.verify import verify_table
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs

COUNT = 1000


@pytest.fixture(scope="module")
@needs("server")
def cluster(fluss_cluster: FlussCluster, spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiering]:
    with served(fluss_cluster.bootstrap, tmp_path_factory.mktemp("layouts"), spark) as tiering:
        yield tiering


def test_tagged_values_are_tiered_and_verified(
    cluster: Tiering, fluss: FlussClient, fluss_cluster: FlussCluster, tmp_path: Path
) -> None:
    options = {"table.kv.value-layout-version": "2", "table.kv.ttl": "1 d"}
    made = new_table_of_later(fluss, descriptor(primary_key=True, tiered=True), **options)
    table, bucket = made.info, TableBucket(made.info.table_id, 0)
    snapshot_id = snapshot_behind(fluss, made, upsert(fluss, made, rows(0, COUNT))).snapshot_id
    expected = [(row["id"], row["name"]) for row in rows(0, COUNT).to_pylist()]

    replace_snapshot(fluss, fluss_cluster.remote_dir, bucket, snapshot_id, tagged_files(tmp_path / "tagged", COUNT))
    cluster.tier(table)

    # From the snapshot, and not from the log.
    assert {row["__offset"] for row in cluster.lake(table)} == {-1}
    assert cluster.lake_rows(table) == expected
    audit = verify_table(cluster.client, cluster.spark, table, target=cluster.target)
    assert (audit.equal, audit.buckets[0].source.rows, audit.buckets[0].expired_rows) == (True, COUNT, 0)

    # RocksDB drops rows that have expired, and the log says nothing about them.
    replace_snapshot(
        fluss,
        fluss_cluster.remote_dir,
        bucket,
        snapshot_id,
        tagged_files(tmp_path / "later", COUNT, without={3, 7, 900}),
    )
    audit = verify_table(cluster.client, cluster.spark, table, target=cluster.target)
    assert (audit.equal, audit.buckets[0].source.rows, audit.buckets[0].expired_rows) == (True, COUNT - 3, 3)


def test_only_the_rounds_of_its_table_fail(cluster: Tiering, fluss: FlussClient) -> None:
    made = new_table_of_later(
        fluss, descriptor(primary_key=True, tiered=True), **{"table.kv.value-layout-version": "3"}
    )
    snapshot_behind(fluss, made, upsert(fluss, made, rows(0, 10)))
    other = cluster.table(freshness="1s")
    cluster.write(other, named(range(10), "row"))

    failed, tiered = cluster.tier_all(made.info, other)

    assert tiered.error is None
    assert len(cluster.lake_rows(other)) == 10
    expected = (
        f"table {made.info.path} has table.kv.value-layout-version=3: expected 1 or 2, the layouts of KV snapshots"
    )
    assert expected in str(failed.error)
    (status,) = cluster.client.list_tiering_statuses(made.info.path)
    assert status.state is TieringState.FAILED
    assert expected in status.last_error
