"""Tables that Fluss's Flink tiering service and we tier in turn hold what was written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from written_rows import printed

import fetch_flink_jars
from benchmarks import rows
from benchmarks.flink.flink_tiering import FlinkTiering
from benchmarks.flink.our_tiering import OurTiering
from benchmarks.flink.rounds import fresh
from benchmarks.flink.tables import BenchmarkTables
from fetch_fluss_jars import VERSIONS
from fluss_support import FlussCluster
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs

pytestmark = [pytest.mark.long, pytest.mark.system, pytest.mark.timeout(1800)]


@pytest.fixture
@needs("cluster")
def cluster(fluss_version, tmp_path):
    """One whose lake has a catalog of files: the SQLite one of the others is locked where Flink's tasks open it."""
    lake_catalog = {"type": "hadoop", "warehouse": f"file://{tmp_path}/warehouse"}
    settings = {f"datalake.iceberg.{key}": value for key, value in lake_catalog.items()}
    with FlussCluster(tmp_path / "fluss", version=fluss_version, settings=settings) as started:
        started.lake_catalog = lake_catalog
        yield started


def batch(first: int, end: int, seed: int) -> pa.RecordBatch:
    return rows.batch_of(np.arange(first, end, dtype=np.int64), seed)


def tier_by_us(tables, chosen, folder, cluster) -> None:
    with OurTiering(folder, cluster.bootstrap) as ours:
        fresh(ours, tables, chosen)


def tier_by_flink(tables, chosen, folder, cluster) -> None:
    class_path = fetch_flink_jars.class_path(VERSIONS[cluster.version])
    fresh(FlinkTiering(folder, cluster.bootstrap, cluster.lake_catalog, class_path), tables, chosen)


def test_rounds_by_flink_and_by_us_in_turn(cluster, readers, tmp_path, spark_jars):
    live: dict[int, dict] = {}
    with FlussClient(cluster.bootstrap, timeout=20) as client:
        tables = BenchmarkTables(client, "turns", cluster.coordinator.log_file)
        log, keyed = tables.create("log", primary_key=False), tables.create("keyed", primary_key=True)
        for number, tier in enumerate((tier_by_us, tier_by_flink, tier_by_us)):
            # Each round changes rows that the one before it wrote, deletes some of them, and adds others.
            tables.append(log, 100 * number, 100)
            upserted = batch(100 * number, 100 * number + 200, seed=number)
            tables.upsert(keyed, [upserted])
            live |= {row["id"]: row for row in upserted.to_pylist()}
            deleted = batch(100 * number + 80, 100 * number + 120, seed=number)
            tables.delete(keyed, [deleted])
            for row_id in deleted.column("id").to_pylist():
                del live[row_id]
            tier(tables, [log, keyed], tmp_path / f"turn-{number}", cluster)
    appended = pa.Table.from_batches([each for first in (0, 100, 200) for each in rows.batches(first, 100)])
    assert readers.lake_rows(cluster, log.path).values == printed(appended)
    left = pa.Table.from_pylist(list(live.values()), schema=upserted.schema)
    assert readers.lake_rows(cluster, keyed.path).values == printed(left)
