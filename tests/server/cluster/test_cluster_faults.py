"""A cluster that refuses some calls, cannot be asked about a table, or is away while leases are let go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from manager_support import Managers

from engine_support import HOUR
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, TableBucket, TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, TieringState
from fluss_tiering.server.backends.cluster import claims, leases
from fluss_tiering.server.backends.cluster.claims import ClusterClaims
from fluss_tiering.server.backends.cluster.discovery import ClusterLogEnds
from fluss_tiering.server.backends.cluster.leases import ClusterLeases
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey


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


# D16
def test_one_release_that_is_refused_for_good_keeps_no_other_from_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.fixture
def threads() -> Iterator[ServerThreads]:
    running = ServerThreads()
    yield running
    running.close()


def log_ends(managers: Managers, threads: ServerThreads, errors: dict[TablePath, FlussTieringError]) -> ClusterLogEnds:
    ids = {table.path: table_id for table_id, table in managers.tables.items()}

    def buckets(path: TablePath, *, wait_for_leaders: bool) -> Sequence[BucketInfo]:
        assert not wait_for_leaders
        if path in errors:
            raise errors[path]
        return [BucketInfo(TableBucket(ids[path], 0), 0, 10 * ids[path], 0)]

    storage: Any = SimpleNamespace(buckets=buckets)
    loaded: Any = SimpleNamespace(tiering=managers.tiering, backlogs=managers.backlogs)
    return ClusterLogEnds(threads, storage, loaded)


def waiting(managers: Managers) -> list[int | None]:
    return [status.records_waiting for status in managers.tiering.statuses()]


async def test_a_bucket_without_a_leader_holds_up_no_other_table(managers: Managers, threads: ServerThreads) -> None:
    tables = [managers.add_table(number) for number in (1, 2, 3)]
    error = FlussTieringError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no tablet server that is alive leads bucket 0")
    errors = {tables[0].path: error}
    job = log_ends(managers, threads, errors)
    with pytest.raises(FlussTieringError) as told:
        await job.run_once()
    assert told.value is error, "the log tells of it"
    assert waiting(managers) == [None, 20, 30]
    errors.clear()
    await job.run_once()
    assert waiting(managers) == [10, 20, 30]


async def test_a_cluster_that_is_away_is_not_asked_about_each_table(managers: Managers, threads: ServerThreads) -> None:
    tables = [managers.add_table(number) for number in (1, 2, 3)]
    errors = {tables[1].path: FlussTieringError(ErrorCode.UNAVAILABLE, "the cluster cannot be reached")}
    with pytest.raises(FlussTieringError):
        await log_ends(managers, threads, errors).run_once()
    assert waiting(managers) == [10, None, None]


async def test_a_server_that_hangs_hides_its_own_tables_alone(managers: Managers, threads: ServerThreads) -> None:
    tables = [managers.add_table(number) for number in (1, 2, 3)]
    errors = {tables[1].path: FlussTieringError(ErrorCode.UNAVAILABLE, "the leader does not answer")}
    job = log_ends(managers, threads, errors)
    for _ in range(2):
        with pytest.raises(FlussTieringError):
            await job.run_once()
    assert waiting(managers) == [10, None, 30]


FIRST, SECOND = TableBucket(1, 0), TableBucket(1, 1)


class LosingCluster:
    """A cluster with every snapshot. It answers no release while it is silent, and nothing while it is away."""

    def __init__(self) -> None:
        self.pinned: set[int] = set()
        self.silent = self.away = False

    async def call(self, call: Any, **_: Any) -> Mapping[TableBucket, int]:
        if self.away:
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "the coordinator is away")
        if call.api is ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE:
            (table,) = call.request.snapshots_to_lease
            self.pinned |= {each.bucket_id for each in table.bucket_snapshots}
        elif call.api is not ApiKey.GET_KV_SNAPSHOT_METADATA:
            if self.silent:
                raise FlussTieringError(ErrorCode.UNAVAILABLE, "the coordinator does not answer")
            if call.api is ApiKey.RELEASE_KV_SNAPSHOT_LEASE:
                self.pinned -= {each.bucket_id for each in call.request.buckets_to_release}
            else:
                self.pinned.clear()
        return {}


def leases_at(cluster: LosingCluster, managers: Managers, threads: ServerThreads) -> ClusterLeases:
    managers.add_table(1, primary_key=True)
    storage: Any = SimpleNamespace(table_by_id=lambda table_id: managers.tables[table_id])
    client: Any = cluster
    loaded: Any = managers
    return ClusterLeases(client, threads, storage, loaded)


# L10, L13, L21
async def test_nothing_is_half_done_while_the_cluster_is_away(managers: Managers, threads: ServerThreads) -> None:
    cluster = LosingCluster()
    leases = leases_at(cluster, managers, threads)
    token = (await leases.acquire("X", HOUR, {FIRST: 4}, allow_empty=False)).attempt_token
    before = managers.leases.leases()
    cluster.away = True
    for call in (
        leases.acquire("X", HOUR, {SECOND: 4}, allow_empty=False),
        leases.acquire("another", HOUR, {FIRST: 4}, allow_empty=False),
        leases.release("X", [FIRST], token),
        leases.drop("X", None),
    ):
        with pytest.raises(FlussTieringError) as refusal:
            await call
        assert refusal.value.code is ErrorCode.UNAVAILABLE
    (renewed,) = await leases.renew([("X", HOUR)])
    assert isinstance(renewed, FlussTieringError)
    assert managers.leases.leases() == before
    cluster.away = False
    assert await leases.release("X", [FIRST], token)
    assert not managers.leases.leases()
    assert not cluster.pinned


async def test_a_renewal_forgets_nothing_that_is_to_be_released(managers: Managers, threads: ServerThreads) -> None:
    cluster = LosingCluster()
    leases = leases_at(cluster, managers, threads)
    await leases.acquire("X", HOUR, {FIRST: 4, SECOND: 4}, allow_empty=False)
    # As the release of what a dropped partition had: it is recorded, and only `tidy` tells the cluster.
    managers.leases.release("X", [SECOND], None)
    cluster.silent = True
    with pytest.raises(FlussTieringError):
        await leases.tidy()
    for _ in range(2):
        assert await leases.renew([("X", HOUR)]) == [managers.leases.leases("X")[0].expiration_time]
    cluster.silent = False
    await leases.tidy()
    assert cluster.pinned == {FIRST.bucket}
    await leases.drop("X", None)
    assert cluster.pinned == set()
