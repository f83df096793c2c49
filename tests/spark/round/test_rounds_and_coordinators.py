"""A round during which the cluster loses its coordinator and gets another one at another address."""

from __future__ import annotations

from pathlib import Path

import pytest
from held_writer import HeldStage
from spark_support import in_background, named, served

from fluss_support import FlussCluster
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.storage.fluss.rpc.calls.lake import lake_snapshot
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.system, pytest.mark.long]

FIRST, SECOND = named(range(10), "first"), named(range(5, 15), "second")


def test_a_round_outlives_its_cluster_s_coordinator(
    spark, fluss_version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name of its own, since the session knows the lake of the shared cluster.
    settings = {"datalake.iceberg.name": f"coordinators_lake_{fluss_version.replace('.', '_')}"}
    with FlussCluster(tmp_path / "cluster", version=fluss_version, settings=settings) as cluster:
        second = cluster.second_coordinator
        either = f"{cluster.bootstrap},localhost:{second.port}"
        with (
            served(either, tmp_path / "server", spark) as tiering,
            FlussClient(f"localhost:{second.port}") as fluss,
        ):
            logged, keyed = tables = [
                tiering.table(primary_key=primary_key, num_buckets=2, freshness="1s") for primary_key in (False, True)
            ]
            for table in tables:
                tiering.write(table, FIRST)
            stage = HeldStage(tmp_path, monkeypatch)
            running = in_background(tiering, *tables)
            stage.wait()
            monkeypatch.undo()
            second.start()
            cluster.coordinator.kill()
            wait_until(lambda: cluster.is_led_by(second))
            stage.go()
            results = running.result()
            for table, result in zip(tables, results, strict=True):
                # Committed or cleanly failed, as its calls met the cluster.
                assert tiering.lake_rows(table) == ([] if result.failed else sorted(FIRST.items()))

            for table in tables:
                tiering.round(table, SECOND)
                newest = tiering.snapshots(table)[-1].snapshot_id
                expected = LakeSnapshot(table.table_id, newest, tiering.log_ends(table))
                assert fluss.call(lake_snapshot(table.path)) == expected
            assert tiering.lake_rows(logged) == sorted([*FIRST.items(), *SECOND.items()])
            assert tiering.lake_rows(keyed) == sorted({**FIRST, **SECOND}.items())
