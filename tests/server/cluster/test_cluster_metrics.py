"""What a server in front of a real Fluss cluster exports, also while the cluster hangs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cluster_support import ClusterServer, claim, commit, finish, lake_table, put

from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.server.backends.cluster import backend
from metrics_support import scrape, value
from waiting import wait_until


def test_what_is_not_in_the_lake_is_told_while_the_cluster_hangs(
    fluss_cluster: FlussCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_LOG_ENDS_INTERVAL_MS", 100)
    with (
        ClusterServer(tmp_path, fluss_cluster.bootstrap, metrics_enabled=True, metrics_port=0) as server,
        TieringClient(server.target) as client,
    ):
        table = lake_table(client, "scraped", freshness="1h", primary_key=False)

        def pending() -> float:
            # Not there before the first look.
            name = "fluss_coordinator_lakeTiering_table_pendingRecords"
            samples = scrape(server.server.metrics_port)
            found = [number for labels, number in samples.get(name, []) if labels["table"] == table.path.table]
            return found[0] if found else -1

        put(client, table, 10)
        wait_until(lambda: pending() == 10)
        put(client, table, 5, first=10)
        wait_until(lambda: pending() == 15)
        held = claim(client, table)
        commit(client, table, held)
        finish(client, held)
        wait_until(lambda: pending() == 0)
        put(client, table, 1, first=15)
        wait_until(lambda: pending() == 1)
        tables = "fluss_coordinator_tableCount"
        wait_until(lambda: value(scrape(server.server.metrics_port), tables) >= 1)

        for each in fluss_cluster.servers:
            each.pause()
        try:
            time.sleep(3)  # by then, what was known has become old
            began = time.monotonic()
            assert pending() == 1
            assert value(scrape(server.server.metrics_port), tables) >= 1
            assert time.monotonic() - began < 20
        finally:
            for each in fluss_cluster.servers:
                each.resume()
        fluss_cluster.wait_until_ready()
        wait_until(lambda: client.drop_table(table.path, drop_untiered=True) in (1, None))
