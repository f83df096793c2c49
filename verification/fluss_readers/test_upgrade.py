"""A cluster of Fluss 0.9.1 with tiered tables is started as 1.0 on the same data and ZooKeeper, and tiered further."""

from __future__ import annotations

import pyarrow as pa
import pytest
from turns import Turns, tier_by_flink, tier_by_us
from written_rows import printed

from benchmarks.flink.tables import BenchmarkTables
from fluss_java_client import FlussJavaClient
from fluss_support import FlussCluster
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs

pytestmark = [
    pytest.mark.fluss_versions("1.0"),
    pytest.mark.long,
    pytest.mark.system,
    pytest.mark.timeout(1800),
]


@pytest.fixture
@needs("cluster")
def cluster_at(tmp_path, lake_of_files):
    """Starts a cluster of a version on the folders that the one before has left."""

    def start(version: str) -> FlussCluster:
        cluster = FlussCluster(tmp_path / "fluss", version=version, settings=lake_of_files.settings)
        cluster.lake_catalog = lake_of_files.catalog
        return cluster

    return start


def end_orderly(cluster: FlussCluster) -> None:
    for server in [*cluster.tablet_servers, cluster.coordinator, cluster.zookeeper]:
        server.stop()


def test_a_cluster_is_upgraded_in_place(fluss_version, cluster_at, readers, tmp_path, spark_jars):
    ours = tmp_path / "ours"  # the data folder of our server, which is started again for each turn
    with cluster_at("0.9.1") as old:
        with FlussClient(old.bootstrap, timeout=20) as client:
            tables = BenchmarkTables(client, "upgraded", old.coordinator.log_file)
            turns = Turns(tables)
            turns.change(tables)
            tier_by_us(tables, turns, ours, old)
            turns.change(tables)  # is in the log of 0.9.1 when 1.0 starts
        end_orderly(old)

    with cluster_at(fluss_version) as new, FlussClient(new.bootstrap, timeout=60) as client:
        tables = BenchmarkTables(client, "upgraded", new.coordinator.log_file)
        tables.tiered(turns.both)
        tier_by_us(tables, turns, ours, new)
        for number, tier in enumerate((tier_by_flink, tier_by_us)):
            turns.change(tables)
            tier(tables, turns, ours if tier is tier_by_us else tmp_path / f"flink-{number}", new)
        assert readers.lake_rows(new, turns.log.path).values == printed(turns.appended())
        assert readers.lake_rows(new, turns.keyed.path).values == printed(turns.left())

        # A table that 0.9.1 made gets a column, which only 1.0 allows.
        with FlussJavaClient(tmp_path, new.bootstrap) as java:
            java.add_column(turns.log.path, "extra", "BIGINT")
        turns.change(tables)
        tier_by_us(tables, turns, ours, new)
        widened = turns.appended()
        widened = widened.append_column("extra", pa.nulls(widened.num_rows, pa.int64()))
        assert readers.lake_rows(new, turns.log.path).values == printed(widened)
        # Rows that are only in the log are read after those of the lake.
        turns.change(tables)
        widened = turns.appended()
        widened = widened.append_column("extra", pa.nulls(widened.num_rows, pa.int64()))
        assert readers.query(new, f"SELECT * FROM fluss.{turns.log.path}").values == printed(widened)
