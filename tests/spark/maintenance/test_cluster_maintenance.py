"""Compaction and expiry of a lake table of a real Fluss cluster, before and between rounds."""

from __future__ import annotations

import pytest
from maintenance_support import compact, expire, ids, tier_without_registering
from spark_support import Tiering, named

from fluss_tiering.storage.fluss.rpc.calls.lake import lake_snapshot
from fluss_tiering.storage.fluss.rpc.client import FlussClient

_WAIT = {"claim_timeout_s": 60}


@pytest.mark.long
def test_rounds_and_recovery_go_on_after_compaction_and_expiry(
    cluster: Tiering, fluss: FlussClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = cluster.table(num_buckets=2, freshness="1s")
    rows: dict[int, str] = {}
    snapshots = []
    for number in range(2):
        cluster.write(table, new := named(range(5 * number, 5 * number + 10), f"round {number}"))
        rows |= new
        cluster.delete(table, [5 * number])
        del rows[5 * number]
        cluster.tier(table, **_WAIT)
        snapshots.append(fluss.call(lake_snapshot(table.path)).snapshot_id)

    compacted = compact(cluster, table)
    assert compacted.before.delete_files > compacted.after.delete_files == 0
    assert compacted.after.data_files < compacted.before.data_files
    # The cluster calls the last round's snapshot readable: it stays below what the compaction made. There may be more
    # snapshots than rounds, since a round that reads a KV snapshot and the changes after it makes one of each.
    found = ids(cluster, table)
    readable = found.index(snapshots[-1])
    assert readable >= found.index(snapshots[0]) + 1
    assert len(found) > readable + 1
    assert expire(cluster, table).expired == readable
    assert ids(cluster, table) == found[readable:]
    assert cluster.lake_rows(table) == sorted(rows.items())

    cluster.write(table, new := named(range(8, 25), "unregistered"))
    rows |= new
    cluster.delete(table, [7])
    del rows[7]
    unregistered = tier_without_registering(cluster, table, monkeypatch, **_WAIT)
    assert fluss.call(lake_snapshot(table.path)).snapshot_id == snapshots[-1]
    compact(cluster, table)
    expire(cluster, table, retain_last=1)
    assert {snapshots[-1], unregistered} <= set(ids(cluster, table))
    # Nothing is new, so that the next round does nothing but register it, with the offsets that are its own.
    assert cluster.tier(table, **_WAIT).stats.rows == 0
    registered = fluss.call(lake_snapshot(table.path))
    assert (registered.snapshot_id, registered.log_end_offsets) == (unregistered, cluster.log_ends(table))
    assert cluster.lake_rows(table) == sorted(rows.items())

    cluster.write(table, new := named(range(20, 30), "after"))
    rows |= new
    cluster.tier(table, **_WAIT)
    newest = fluss.call(lake_snapshot(table.path)).snapshot_id
    expire(cluster, table)
    assert ids(cluster, table) == [newest]
    assert cluster.lake_rows(table) == sorted(rows.items())
