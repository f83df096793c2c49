"""What a standby server reads from the database is what the active server would answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
from manager_support import Managers

from engine_support import HOUR
from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.api.v1.common_pb2 import PbTablePath
from fluss_tiering.api.v1.kv_snapshot_leases_pb2 import ListKvSnapshotLeasesRequest
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.server.failover.standby_reads import read_handlers
from fluss_tiering.server.rpc.reads import LeaseReads, TieringReads
from fluss_tiering.server.rpc.status_entries import StatusEntries
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


ROUNDS = "/fluss_tiering.v1.LakeTiering/ListTieringRounds"
STATUSES = "/fluss_tiering.v1.LakeTiering/ListTieringStatuses"
OUTCOME = "/fluss_tiering.v1.LakeTiering/GetLeaseOutcome"
LEASES = "/fluss_tiering.v1.KvSnapshotLeases/ListKvSnapshotLeases"
FIRST, SECOND = (PbTablePath(database_name="db", table_name=name) for name in ("first", "second"))


class Active:
    """What the active server would answer from its memory."""

    def __init__(self, managers: Managers, threads: ServerThreads) -> None:
        tiering = TieringReads(threads, managers.tiering, Tables(managers), StatusEntries())
        leases = LeaseReads(threads, managers.leases)
        self.reads: dict[str, Callable[[Any], Awaitable[Any]]] = {
            ROUNDS: tiering.list_rounds,
            STATUSES: tiering.list_statuses,
            OUTCOME: tiering.lease_outcome,
            LEASES: leases.list_leases,
        }


class Tables:
    """A `TableLookup` of the tables that a storage would have."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers

    async def missing(self, paths: Sequence[TablePath]) -> dict[TablePath, FlussTieringError]:
        present = {each.path for each in self._managers.tables.values()}
        return {path: FlussTieringError(ErrorCode.TABLE_NOT_EXIST, "gone") for path in paths if path not in present}

    async def require(self, path: TablePath) -> None:
        for error in (await self.missing([path])).values():
            raise error


def bytes_or_code(answer: Awaitable[Any]) -> bytes | ErrorCode:
    """Return the serialized answer, or the code of the error."""

    async def wait() -> bytes | ErrorCode:
        try:
            message = await answer
        except FlussTieringError as error:
            return error.code
        return message if isinstance(message, bytes) else message.SerializeToString()

    return asyncio.run(wait())


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        (ROUNDS, pb.ListTieringRoundsRequest()),
        (ROUNDS, pb.ListTieringRoundsRequest(limit=1)),
        (ROUNDS, pb.ListTieringRoundsRequest(table_path=FIRST)),
        (ROUNDS, pb.ListTieringRoundsRequest(lease_id="X")),
        (ROUNDS, pb.ListTieringRoundsRequest(lease_id="Y", limit=1)),
        (ROUNDS, pb.ListTieringRoundsRequest(lease_id="X", page_size=1, limit=1)),
        (ROUNDS, pb.ListTieringRoundsRequest(lease_id="X", page_size=1, limit=1, page_token="1")),
        (ROUNDS, pb.ListTieringRoundsRequest(table_path=PbTablePath(database_name="db", table_name="unknown"))),
        (STATUSES, pb.ListTieringStatusesRequest(table_path=PbTablePath(database_name="db", table_name="unknown"))),
        (OUTCOME, pb.GetLeaseOutcomeRequest(lease_id="X")),
        (OUTCOME, pb.GetLeaseOutcomeRequest(lease_id="Y", attempt_token=1)),
        (OUTCOME, pb.GetLeaseOutcomeRequest(lease_id="unknown")),
        (LEASES, ListKvSnapshotLeasesRequest()),
        (LEASES, ListKvSnapshotLeasesRequest(lease_id="Y")),
        (LEASES, ListKvSnapshotLeasesRequest(lease_id="unknown")),
        (LEASES, ListKvSnapshotLeasesRequest(page_size=1)),
        (LEASES, ListKvSnapshotLeasesRequest(page_size=1, page_token="X")),
    ],
    ids=lambda each: each.rpartition("/")[2] if isinstance(each, str) else str(each).replace("\n", " ") or "all",
)
def test_a_read_of_the_database_is_what_the_active_server_answers(  # S28
    managers: Managers, threads: ServerThreads, method: str, request_: Any
) -> None:
    first, second = (managers.add_table(table_id, name=name) for table_id, name in ((1, "first"), (2, "second")))
    for lease_id in ("Y", "X"):
        managers.acquire(lease_id, HOUR, {TableBucket(1, 0): 3, TableBucket(2, 1): 4})
        managers.finish(managers.claim(first, lease_id))
        managers.fail(managers.claim(second, lease_id))
    managers.claim(second, "X")
    managers.tiering.cancel("Y", None, "enough")
    expected = bytes_or_code(Active(managers, threads).reads[method](request_))
    handler = read_handlers(threads, lambda: managers.store)[method]
    assert bytes_or_code(handler.unary_unary(request_, None)) == expected  # type: ignore[arg-type, misc]


def test_only_reads_of_the_store_are_answered(managers: Managers, threads: ServerThreads) -> None:  # S28
    assert read_handlers(threads, lambda: managers.store).keys() == {ROUNDS, STATUSES, OUTCOME, LEASES}


def test_a_refused_read_names_its_table(managers: Managers, threads: ServerThreads) -> None:  # S28
    table = managers.alter_table(managers.add_table(1), {ENABLED: "false"})
    with pytest.raises(FlussTieringError, match=f"table {table.path} is not tiered"):
        listed(managers, threads, table.path)
    with pytest.raises(FlussTieringError, match=r"table db\.unknown is not known to the server's database"):
        listed(managers, threads, TablePath("db", "unknown"))
