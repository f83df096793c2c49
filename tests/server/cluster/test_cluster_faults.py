"""A cluster that refuses one call and takes the others, or that has more tables than one heartbeat can wait for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, TieringState
from fluss_tiering.server.backends.cluster import claims, leases
from fluss_tiering.server.backends.cluster.claims import ClusterClaims
from fluss_tiering.server.backends.cluster.leases import ClusterLeases


class Calls:
    """Stands for the server's threads: a call runs at once."""

    async def control(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


class Cluster:
    """Takes the place of a client, and refuses the releases of some leases."""

    def __init__(self, refused: dict[str, FlussTieringError]) -> None:
        self._refused = refused
        self.asked: list[str] = []

    async def call(self, call: Any, *, within: float) -> None:
        del within
        name = call.request.lease_id
        self.asked.append(name)
        if name in self._refused:
            raise self._refused[name]


def pinned_at(cluster: Cluster, *names: str) -> ClusterLeases:
    """Leases at the cluster that no record pins any more."""
    managers: Any = SimpleNamespace(leases=SimpleNamespace(leases=lambda _lease_id: []))
    threads: Any = Calls()
    client: Any = cluster
    storage: Any = None
    service = ClusterLeases(client, threads, storage, managers)
    for name in names:
        service._note(f"lease of {name}", name, [TableBucket(1, 0)], 3_600_000)
    return service


def test_one_release_that_is_refused_for_good_keeps_no_other_from_the_cluster(  # D16
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = FlussTieringError(ErrorCode.UNKNOWN, "Fluss says UNKNOWN_SERVER_ERROR")
    cluster = Cluster({"bad": refusal, "worse": refusal})
    service = pinned_at(cluster, "bad", "good", "worse", "better")
    asyncio.run(service.tidy())
    assert cluster.asked == ["bad", "good", "worse", "better"]
    assert service._pinned.keys() == {"bad", "worse"}
    asyncio.run(service.tidy())
    assert len(cluster.asked) == 4, "it is not asked again at once"
    monkeypatch.setattr(leases, "_REFUSED_AGAIN_S", 0.0)
    for each in service._pinned.values():
        each.tried_again_at = 0.0
    cluster._refused.clear()
    asyncio.run(service.tidy())
    assert not service._pinned


def test_a_cluster_that_does_not_answer_is_not_asked_for_each_lease() -> None:  # D16
    away = FlussTieringError(ErrorCode.UNAVAILABLE, "no answer")
    cluster = Cluster({"first": away})
    service = pinned_at(cluster, "first", "second")
    with pytest.raises(FlussTieringError):
        asyncio.run(service.tidy())
    assert cluster.asked == ["first"]


class Coordinator:
    """Hands out one table for each request, for ever, and each answer takes a second."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.given = 0
        self.kept_alive: list[int] = []

    def monotonic(self) -> float:
        return self.now

    async def call(self, call: Any, *, within: float) -> HeartbeatAnswer:
        del within
        self.now += 1.0
        self.kept_alive += [each.table_id for each in call.request.tiering_tables]
        self.given += 1
        return HeartbeatAnswer(0, Claim(self.given, TablePath("db", f"t{self.given}"), 1))


def test_no_more_tables_are_taken_than_their_heartbeats_can_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:  # D16
    coordinator = Coordinator()
    monkeypatch.setattr(claims, "time", SimpleNamespace(monotonic=coordinator.monotonic))
    pending = SimpleNamespace(status=SimpleNamespace(state=TieringState.PENDING))
    tiering = SimpleNamespace(
        make_due=lambda _table_id: TieringState.PENDING, tables=SimpleNamespace(get=lambda _table_id: pending)
    )
    client: Any = coordinator
    threads: Any = Calls()
    managers: Any = SimpleNamespace(tiering=tiering)
    held = ClusterClaims(client, threads, managers, discover=None)  # type: ignore[arg-type]
    while 1 not in coordinator.kept_alive:
        asyncio.run(held.run_once())
        assert coordinator.now < 1000 + claims._GIVEN_UP_S / 2, "the first table has had no heartbeat for so long"
    assert len(held.held) > 10
