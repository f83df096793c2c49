"""What a standby server reads from the database is what the active server would answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from manager_support import Managers

from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.server.failover.standby_reads import read_handlers
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.wire.tables import path_to_pb
from fluss_tiering.wire.tiering import status_from_pb

ENABLED = "table.datalake.enabled"


@pytest.fixture
def threads() -> Iterator[ServerThreads]:
    running = ServerThreads()
    yield running
    running.close()


def listed(managers: Managers, threads: ServerThreads, path: TablePath | None = None) -> list[TieringStatus]:
    handler = read_handlers(threads, lambda: managers.store)["/fluss_tiering.v1.LakeTiering/ListTieringStatuses"]
    request = pb.ListTieringStatusesRequest(table_path=None if path is None else path_to_pb(path))

    async def call() -> bytes:
        return await handler.unary_unary(request, None)  # type: ignore[no-any-return, misc]

    response = pb.ListTieringStatusesResponse.FromString(asyncio.run(call()))
    return [status_from_pb(each) for each in response.tiering_statuses]


def test_a_standby_server_lists_what_the_active_one_does(managers: Managers, threads: ServerThreads) -> None:  # D13
    off, failed, parked, running, tiered, scheduled, old = (
        managers.add_table(table_id, name=name, freshness="0s")
        for table_id, name in enumerate(["off", "Failed", "parked", "running", "tiered", "scheduled", "again"], 1)
    )
    managers.finish(managers.claim(off))
    off = managers.alter_table(off, {ENABLED: "false"})
    managers.fail(managers.claim(failed))
    for _ in range(10):
        managers.fail(managers.claim(parked))
    managers.claim(running)
    managers.finish(managers.claim(tiered))
    managers.alter_table(scheduled, {"table.datalake.freshness": "1h"})
    managers.finish(managers.claim(scheduled))
    # A newer table has the path, and the older one is not forgotten yet.
    again = managers.add_table(8, name="again", freshness="0s")
    assert old.path == again.path
    assert listed(managers, threads) == list(managers.tiering.statuses())
    assert listed(managers, threads, again.path) == [managers.status(again)]
    with pytest.raises(FlussTieringError) as refused:
        listed(managers, threads, off.path)
    assert refused.value.code is ErrorCode.INVALID_TIERING_STATE, "it exists, but is not tiered"
    managers.alter_table(off, {ENABLED: "true"})
    assert listed(managers, threads, off.path) == [managers.status(off)]
