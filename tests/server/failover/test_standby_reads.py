"""What a standby server reads from the database is what the active server would answer."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from manager_support import Managers

from engine_support import HOUR
from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.api.v1.common_pb2 import PbTablePath
from fluss_tiering.api.v1.kv_snapshot_leases_pb2 import ListKvSnapshotLeasesRequest, ListKvSnapshotLeasesResponse
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.server.failover.standby_reads import _StoredLeases, _StoredTiering, read_handlers
from fluss_tiering.server.rpc.reads import LeaseReads, TieringReads
from fluss_tiering.server.rpc.scope.leases import LeaseTables
from fluss_tiering.server.rpc.status_entries import StatusEntries
from fluss_tiering.server.security.identity import ANYBODY, Identity, set_caller
from fluss_tiering.server.security.roles import Grant, Role
from fluss_tiering.server.store import schema, store
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.wire.tables import path_to_pb
from fluss_tiering.wire.tiering import status_from_pb

ENABLED = "table.datalake.enabled"


@pytest.fixture(autouse=True)
def _caller() -> None:
    set_caller(ANYBODY, Role.ADMIN)


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


async def no_paths(table_ids: Collection[int]) -> Mapping[int, TablePath]:
    """Return nothing: the caller of these tests may see all tables, so that nobody asks."""
    raise AssertionError(table_ids)


class Active:
    """What the active server would answer from its memory."""

    def __init__(self, managers: Managers, threads: ServerThreads) -> None:
        leased = LeaseTables(threads, managers.leases.table_ids, managers.tiering.rounds_page, no_paths)
        tiering = TieringReads(threads, managers.tiering, Tables(managers), leased, StatusEntries())
        leases = LeaseReads(threads, managers.leases, leased)
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


def test_a_standby_server_shows_callers_the_tables_of_their_roles(managers: Managers, threads: ServerThreads) -> None:
    first, second = (managers.add_table(table_id, name=name) for table_id, name in ((1, "first"), (2, "second")))
    untiered = TableBucket(9, 0)
    managers.acquire("both", HOUR, {TableBucket(1, 0): 3, TableBucket(2, 0): 4, untiered: 5})
    managers.acquire("second", HOUR, {TableBucket(2, 0): 4})
    managers.acquire("untiered", HOUR, {untiered: 5})
    managers.acquire("empty", HOUR, {})
    managers.finish(managers.claim(first, "both"))
    managers.fail(managers.claim(second, "both"))
    managers.claim(second, "second")
    managers.tiering.cancel("second", None, "enough")
    handlers = read_handlers(threads, lambda: managers.store)

    def ask(method: str, request: Any) -> bytes:
        async def call() -> Any:
            return await handlers[method].unary_unary(request, None)  # type: ignore[misc]

        answer = asyncio.run(call())
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    def refusal(path: TablePath) -> str:
        with pytest.raises(FlussTieringError) as refused:
            ask(STATUSES, pb.ListTieringStatusesRequest(table_path=path_to_pb(path)))
        assert refused.value.code is ErrorCode.TABLE_NOT_EXIST
        with pytest.raises(FlussTieringError) as also:
            ask(ROUNDS, pb.ListTieringRoundsRequest(table_path=path_to_pb(path)))
        assert also.value.message == refused.value.message
        return refused.value.message

    def outcome(lease_id: str) -> pb.GetLeaseOutcomeResponse:
        return pb.GetLeaseOutcomeResponse.FromString(ask(OUTCOME, pb.GetLeaseOutcomeRequest(lease_id=lease_id)))

    def leases(**request: Any) -> dict[str, set[int]]:
        answer = ListKvSnapshotLeasesResponse.FromString(ask(LEASES, ListKvSnapshotLeasesRequest(**request)))
        return {each.lease_id: {of.table_id for of in each.snapshots} for each in answer.leases}

    everybody = leases()
    set_caller(Identity("token/x", (Grant.parse("reader", "db.f*"),)), Role.READER)
    listed_now = pb.ListTieringStatusesResponse.FromString(ask(STATUSES, pb.ListTieringStatusesRequest()))
    assert [each.table_path.table_name for each in listed_now.tiering_statuses] == ["first"]
    assert refusal(second.path).replace("second", "nobody") == refusal(TablePath("db", "nobody"))
    rounds = pb.ListTieringRoundsResponse.FromString(ask(ROUNDS, pb.ListTieringRoundsRequest()))
    assert {each.table_path.table_name for each in rounds.rounds} == {"first"}
    assert [each.table_path.table_name for each in outcome("both").rounds] == ["first"]
    for lease_id in ("second", "untiered"):
        assert outcome(lease_id) == outcome("unknown")
        assert leases(lease_id=lease_id) == {}
    assert outcome("empty").HasField("newest_attempt_token"), "it has no table that could be hidden"
    assert everybody == {"both": {1, 2, 9}, "second": {2}, "untiered": {9}}
    assert leases() == leases(page_size=1) == leases(lease_id="both") == {"both": {1}}


@pytest.mark.parametrize("size", [1, 3])
def test_each_page_of_leases_reads_its_own_leases(
    managers: Managers, threads: ServerThreads, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    ids = [*string.ascii_letters[10:40], "a-b", "a_b", "\u00e4"]
    for number, lease_id in enumerate(ids):
        managers.acquire(lease_id, HOUR, {TableBucket(1, bucket): 3 for bucket in range(1 + number % 3)})
    damaged = sorted(ids)[4:8]
    with managers.store._database.engine.begin() as connection:
        pins = schema.leased_snapshots
        connection.execute(sa.delete(pins).where(pins.c.lease_id.in_(damaged)))
    sound = sorted(set(ids) - set(damaged))
    read, stored_leases = [], store.stored_leases

    def reading(leases: Sequence[Any], snapshots: Sequence[Any]) -> Any:
        read.extend(row.lease_id for row in leases)
        return stored_leases(leases, snapshots)

    monkeypatch.setattr(store, "stored_leases", reading)
    handler = read_handlers(threads, lambda: managers.store)[LEASES]

    async def pages() -> list[str]:
        found, token = [], ""
        while True:
            request = ListKvSnapshotLeasesRequest(page_size=size, page_token=token)
            answer = ListKvSnapshotLeasesResponse.FromString(
                await handler.unary_unary(request, None)  # type: ignore[misc]
            )
            found += [each.lease_id for each in answer.leases]
            token = answer.next_page_token
            if not token:
                return found

    assert asyncio.run(pages()) == sound
    assert sorted(each for each in read if each in sound) == sound, "each once"


@pytest.mark.parametrize(("max_snapshots", "expected"), [(1, ["A"]), (2, ["A"]), (3, ["A", "B"]), (9, ["A", "B", "C"])])
def test_a_page_ends_behind_many_snapshots(managers: Managers, max_snapshots: int, expected: list[str]) -> None:
    for lease_id in "BCA":
        managers.acquire(lease_id, HOUR, {TableBucket(1, bucket): 3 for bucket in range(2)})
    stored = _StoredLeases(lambda: managers.store)
    for leases in (stored, managers.leases):
        assert [each.lease_id for each in leases.page("", 5, max_snapshots)] == expected


def test_a_damaged_lease_takes_no_room_of_a_page(managers: Managers) -> None:
    for lease_id in "ABC":
        managers.acquire(lease_id, HOUR, {TableBucket(1, 0): 3})
    with managers.store._database.engine.begin() as connection:
        pins = schema.leased_snapshots
        connection.execute(sa.delete(pins).where(pins.c.lease_id == "A"))
    page = _StoredLeases(lambda: managers.store).page("", 5, 2)
    assert [each.lease_id for each in page] == ["B", "C"]


def test_of_tables_with_the_same_path_the_newest_counts_in_whatever_order_they_are_read(managers: Managers) -> None:
    for table_id in (1, 2, 3):
        managers.add_table(table_id, name="again")
    statuses = list(managers.store.statuses())
    assert len(statuses) == 3
    for rows in (statuses, statuses[::-1]):
        stored = _StoredTiering(lambda rows=rows: SimpleNamespace(statuses=lambda: rows))  # type: ignore[misc, arg-type, return-value]
        assert [each.table_id for each in stored.statuses()] == [3]
