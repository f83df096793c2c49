"""A table whose KV snapshots have a layout that is not known, beside another table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fluss_tables import descriptor, new_table_of_later, rows, snapshot_behind, upsert
from spark_support import Tiering, named, served

from fluss_support import FlussCluster
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs


@pytest.fixture(scope="module")
@needs("server")
def cluster(fluss_cluster: FlussCluster, spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiering]:
    with served(fluss_cluster.bootstrap, tmp_path_factory.mktemp("layouts"), spark) as tiering:
        yield tiering


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
