"""Tables that Fluss's Flink tiering service and we tier in turn hold what was written."""

from __future__ import annotations

import pytest
from turns import Turns, tier_by_flink, tier_by_us
from written_rows import printed

from benchmarks.flink.tables import BenchmarkTables
from fluss_support import FlussCluster
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs
from waiting import WAIT_S

pytestmark = [pytest.mark.long, pytest.mark.system, pytest.mark.timeout(1800)]


@pytest.fixture
@needs("cluster")
def cluster(fluss_version, tmp_path, lake_of_files):
    with FlussCluster(tmp_path / "fluss", version=fluss_version, settings=lake_of_files.settings) as started:
        started.lake_catalog = lake_of_files.catalog
        yield started


def test_rounds_by_flink_and_by_us_in_turn(cluster, readers, tmp_path, spark_jars):
    with FlussClient(cluster.bootstrap, timeout=WAIT_S) as client:
        tables = BenchmarkTables(client, "turns", cluster.coordinator.log_file)
        turns = Turns(tables)
        for number, tier in enumerate((tier_by_us, tier_by_flink, tier_by_us)):
            turns.change(tables)
            tier(tables, turns, tmp_path / f"turn-{number}", cluster)
    assert readers.lake_rows(cluster, turns.log.path).values == printed(turns.appended())
    assert readers.lake_rows(cluster, turns.keyed.path).values == printed(turns.left())
