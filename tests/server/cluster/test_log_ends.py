"""How far the logs of a cluster's tables reach: a table that cannot be asked about holds up no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from manager_support import Managers

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, TableBucket, TablePath
from fluss_tiering.server.backends.cluster.discovery import ClusterLogEnds
from fluss_tiering.server.core.threads import ServerThreads


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
