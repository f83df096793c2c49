"""Leases while the cluster does not answer: nothing is half done, and what could not be released is released later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from manager_support import Managers

from engine_support import HOUR
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.backends.cluster.leases import ClusterLeases
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey

FIRST, SECOND = TableBucket(1, 0), TableBucket(1, 1)


class Cluster:
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


@pytest.fixture
def threads() -> Iterator[ServerThreads]:
    running = ServerThreads()
    yield running
    running.close()


def leases_at(cluster: Cluster, managers: Managers, threads: ServerThreads) -> ClusterLeases:
    managers.add_table(1, primary_key=True)
    storage: Any = SimpleNamespace(table_by_id=lambda table_id: managers.tables[table_id])
    client: Any = cluster
    loaded: Any = managers
    return ClusterLeases(client, threads, storage, loaded)


async def test_nothing_is_half_done_while_the_cluster_is_away(  # L10, L13, L21
    managers: Managers, threads: ServerThreads
) -> None:
    cluster = Cluster()
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
    cluster = Cluster()
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
