"""Tables that a real Fluss cluster hands out and this server does not know, or cannot tier."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_support import ClusterServer, claim, finish, lake_table, put, snapshot_behind, wait_for

from engine_support import HOUR, descriptor, status
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import HeartbeatEntry, TieringState
from fluss_tiering.server.backends.cluster import claims
from fluss_tiering.server.backends.cluster.claims import ClusterClaims
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.storage.fluss.rpc.calls.tables import alter_table, create_table, drop_table, table
from fluss_tiering.storage.fluss.rpc.client import AsyncFlussClient, FlussClient
from waiting import wait_until

NUMBERS = itertools.count()


@pytest.fixture
def unknown(fluss: FlussClient) -> Iterator[TablePath]:
    """A table made by another client, due after 200 ms. Its lake table stays when it is dropped."""
    path = TablePath("fluss", f"made_by_others_{next(NUMBERS)}")
    fluss.call(create_table(path, descriptor(primary_key=False, freshness="200ms")))
    yield path
    fluss.call(drop_table(path))


@pytest.fixture
def threads() -> Iterator[ServerThreads]:
    opened = ServerThreads()
    yield opened
    opened.close()


async def test_a_table_that_cannot_be_tiered_is_left_to_others(
    fluss_cluster: FlussCluster,
    fluss: FlussClient,
    unknown: TablePath,
    threads: ServerThreads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[bool] = []

    async def look() -> None:
        looked.append(True)

    table_id = fluss.call(table(unknown)).table_id
    # A fake in the place of tiering: of every type there is, some server may know none.
    coordinator: Any = SimpleNamespace(tiering=SimpleNamespace(make_due=lambda _table_id: None))
    async with AsyncFlussClient(fluss_cluster.bootstrap) as client:
        held = ClusterClaims(client, threads, coordinator, look, heartbeat_s=0)
        while table_id not in held.held:
            await held.run_once()
        assert looked
        kept_alive = held._held[table_id].kept_alive
        for _ in range(3):
            await held.run_once()
        assert held._held[table_id].kept_alive == kept_alive, "no heartbeat: it is offered to others after 2 min"
        monkeypatch.setattr(claims, "_GIVEN_UP_S", 0.0)
        await held.run_once()
        assert table_id not in held.held


def test_a_table_of_another_client_is_taken(fluss_cluster: FlussCluster, fluss: FlussClient, tmp_path) -> None:
    path = TablePath("fluss", "others_want_it_tiered")
    with ClusterServer(tmp_path, fluss_cluster.bootstrap) as server, TieringClient(server.target) as client:
        fluss.call(create_table(path, descriptor(primary_key=False, freshness="200ms")))
        made = fluss.call(table(path))
        assert status(client, made).tiering_epoch in {0, 1}, "at once, before anybody looked for new tables"
        found = wait_for(client, made, TieringState.PENDING)
        assert found.tiering_epoch == 1
        assert server.holds(made)
        fluss.call(drop_table(path))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fate", ["repaired", "switched off", "dropped"])
def test_a_table_that_cannot_be_used_over_a_restart_keeps_its_state_and_lease(  # D2, S3
    fluss_cluster: FlussCluster, fluss: FlussClient, tmp_path, fate: str
) -> None:
    with ClusterServer(tmp_path, fluss_cluster.bootstrap) as server, TieringClient(server.target) as client:
        made = lake_table(client, "bad_for_a_while", freshness="1h")
        for _ in range(3):
            finish(client, claim(client, made))
        put(client, made, 1)
        snapshot = snapshot_behind(client, made, 1)
        client.acquire_lease("kept", HOUR, {snapshot.bucket: snapshot.snapshot_id})
        before = status(client, made)
        rounds = client.list_tiering_rounds(made.path)
        assert (before.tiering_epoch, len(rounds)) == (3, 3)
        running = claim(client, made, "kept")
    fluss.call(alter_table(made.path, {"table.datalake.freshness": "9999 d"}))
    with ClusterServer(tmp_path, fluss_cluster.bootstrap) as server, TieringClient(server.target) as client:
        (seen,) = [each for each in client.list_tiering_statuses() if each.table_id == made.table_id]
        assert (seen.tiering_epoch, seen.last_tiered_time) == (4, before.last_tiered_time)
        assert client.list_tiering_rounds(made.path)[1:] == rounds
        assert [lease.lease_id for lease in client.list_leases("kept")] == ["kept"]
        server.run(server.backend.discovery.run_once())
        assert not client.heartbeat(tiering=[HeartbeatEntry(made.table_id, running.tiering_epoch)]).tiering_errors, (
            "its round goes on"
        )
        if fate == "dropped":
            fluss.call(drop_table(made.path))
            wait_until(lambda: made.table_id not in {each.table_id for each in client.list_tiering_statuses()})
            wait_until(lambda: client.list_leases("kept") == [])
            return
        fluss.call(alter_table(made.path, {"table.datalake.freshness": "2h"}))
        if fate == "switched off":
            fluss.call(alter_table(made.path, {"table.datalake.enabled": "false"}))
            wait_until(lambda: made.table_id not in {each.table_id for each in client.list_tiering_statuses()})
            # Fluss refuses to switch it on again while the lake has its table. The epoch is kept for when it allows it.
            assert server.components.managers.tiering.tables.withdrawn[made.table_id].tiering_epoch == 4
            return
        tables = server.components.managers.tiering.tables

        def has_its_options() -> bool:
            table = tables.get(made.table_id)
            return table is not None and table.freshness_ms == 2 * HOUR

        wait_until(has_its_options)
        finish(client, running)
        assert claim(client, made, "next").tiering_epoch == 5, "the epoch goes on from where it was"
