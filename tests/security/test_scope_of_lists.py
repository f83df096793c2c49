"""Roles for some tables: lists and streams show these tables, in full pages, and tell of no other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

import grpc
import pytest
from scoped_calls import ask

from cases import cases
from engine_support import HOUR, descriptor, put
from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.api.v1.common_pb2 import PbTablePath
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, KvSnapshotLease, TieringRound
from fluss_tiering.server.services import kv_snapshot_leases
from token_support import TokenServer

pytestmark = pytest.mark.slow

PATHS = [TablePath(database, name) for database in ("a", "ab", "b") for name in ("t", "t1", "t2", "s", "u_1")]
CHOICES = [f"{database}.{name}" for database in ("a", "a*", "b", "*") for name in ("*", "t*", "*1", "s", "u_*")]
CHOICE = random.Random(15)
GRANTS = [["no.table"], ["a.*"], *([*CHOICE.sample(CHOICES, CHOICE.randint(1, 3))] for _ in range(6))]
"""The patterns of several callers."""
SIZES = [1, 2, 3, 7, 1000]


def shown(path: TablePath, patterns: Sequence[str]) -> bool:
    """What a caller may see, in plain Python."""
    pairs = [pattern.split(".") for pattern in patterns]
    return any(fnmatchcase(path.database, first) and fnmatchcase(path.table, second) for first, second in pairs)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    readers = {",".join(each): [f"reader={pattern}" for pattern in each] for each in GRANTS}
    with TokenServer(tmp_path_factory.mktemp("lists"), {"all": ["admin"], **readers}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: TokenServer) -> Iterator[TieringClient]:
    with server.client("all") as client:
        yield client


class Everything:
    """All tables, leases and rounds of the server."""

    def __init__(self, admin: TieringClient) -> None:
        # The order of ids is not that of paths.
        self.tables: dict[int, TableInfo] = {}
        for path in random.Random(1).sample(PATHS, len(PATHS)):
            table = admin.create_table(path, descriptor(freshness="0s"))
            put(admin, table, {1: "one"})
            self.tables[table.table_id] = table
        snapshots = admin.take_kv_snapshots(PATHS)
        latest = {each.bucket: each.snapshot_id for some in snapshots.values() for each in some}
        buckets = sorted(latest, key=lambda bucket: bucket.table_id)
        for number in range(12):
            some = random.Random(number).sample(buckets, number % 4 + 1)
            admin.acquire_lease(f"lease {number:02}", HOUR, {bucket: latest[bucket] for bucket in some})
        for number in range(3):
            for lease_id, paths in (("even", PATHS[::2]), ("odd", PATHS[1::2])):
                claims = admin.claim_tables(paths[number:], lease_id, None, f"driver {number}")
                ended = [
                    HeartbeatEntry(each.table_id, each.tiering_epoch) for each in claims if isinstance(each, Claim)
                ]
                admin.heartbeat(finished=ended)
        self.leases: list[KvSnapshotLease] = admin.list_leases()
        self.rounds: list[TieringRound] = admin.list_tiering_rounds(limit=20)
        assert len(self.leases) == 12
        assert len({each.table_id for each in self.rounds}) > 10


@pytest.fixture(scope="module")
def everything(admin: TieringClient) -> Everything:
    return Everything(admin)


def pages(server: TokenServer, name: str, who: str, request: Any, answer: Any, size: int) -> list[Any]:
    """Return the answers to a client that asks for all pages of a size."""
    request.page_size, request.page_token = size, ""
    found = []
    while True:
        heard = ask(server, who, name, request)
        assert heard.status is grpc.StatusCode.OK, heard.details
        found.append(answer.FromString(heard.responses[0]))
        request.page_token = found[-1].next_page_token
        if not request.page_token:
            return found


def path_of(message: PbTablePath) -> TablePath:
    return TablePath(message.database_name, message.table_name)


@cases("size", SIZES)
@cases("patterns", GRANTS)
def test_tables_and_statuses(
    everything: Everything,
    server: TokenServer,
    patterns: list[str],
    size: int,
) -> None:
    expected = sorted(path for path in PATHS if shown(path, patterns))
    for name, request, answer, field in (
        ("ListTables", tables_pb2.ListTablesRequest(), tables_pb2.ListTablesResponse, "tables"),
        (
            "ListTieringStatuses",
            lake_tiering_pb2.ListTieringStatusesRequest(),
            lake_tiering_pb2.ListTieringStatusesResponse,
            "tiering_statuses",
        ),
    ):
        found = pages(server, name, ",".join(patterns), request, answer, size)
        listed = [[path_of(each.table_path) for each in getattr(page, field)] for page in found]
        assert [each for page in listed for each in page] == expected
        assert all(len(page) == size for page in listed[:-1])
        assert len(listed) == max(1, -(-len(expected) // size)), "no empty page tells of what follows"
        tokens_told = [page.next_page_token for page in found[:-1]]
        assert tokens_told == [f"{page[-1].database}\0{page[-1].table}" for page in listed[:-1]]


@cases("patterns", GRANTS)
def test_rounds(everything: Everything, server: TokenServer, patterns: list[str]) -> None:
    for size, limit in product(SIZES, (1, 3)):
        request = lake_tiering_pb2.ListTieringRoundsRequest(limit=limit)
        answer = lake_tiering_pb2.ListTieringRoundsResponse
        found = pages(server, "ListTieringRounds", ",".join(patterns), request, answer, size)
        listed = [[(each.table_id, each.tiering_epoch) for each in page.rounds] for page in found]
        expected = []
        for table_id, table in sorted(everything.tables.items()):
            of_table = [each for each in everything.rounds if each.table_id == table_id]
            if shown(table.path, patterns):
                expected += [(table_id, each.tiering_epoch) for each in of_table[:limit]]
        assert [each for page in listed for each in page] == expected
        assert all(size <= len(page) < size + limit for page in listed[:-1]), "a page has whole tables"


@cases("size", SIZES)
@cases("patterns", GRANTS)
def test_leases(
    everything: Everything,
    server: TokenServer,
    patterns: list[str],
    size: int,
) -> None:
    answer = kv_snapshot_leases_pb2.ListKvSnapshotLeasesResponse
    expected = {}
    for lease in everything.leases:
        pinned = {bucket.table_id for bucket in lease.snapshots}
        if seen := sorted(each for each in pinned if shown(everything.tables[each].path, patterns)):
            expected[lease.lease_id] = seen
    request = kv_snapshot_leases_pb2.ListKvSnapshotLeasesRequest()
    found = pages(server, "ListKvSnapshotLeases", ",".join(patterns), request, answer, size)
    listed = [[(each.lease_id, sorted(of.table_id for of in each.snapshots)) for each in page.leases] for page in found]
    assert [each for page in listed for each in page] == sorted(expected.items())
    assert all(len(page) == size for page in listed[:-1])
    assert [page.next_page_token for page in found[:-1]] == [page[-1][0] for page in listed[:-1]]


@pytest.mark.parametrize("patterns", GRANTS, ids=",".join)
def test_a_list_of_all_leases_goes_on_after_hidden_ones(
    everything: Everything,
    server: TokenServer,
    patterns: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_snapshot_leases, "_LEASES_AT_ONCE", 1)
    request = kv_snapshot_leases_pb2.ListKvSnapshotLeasesRequest()
    heard = ask(server, ",".join(patterns), "ListKvSnapshotLeases", request)
    answer = kv_snapshot_leases_pb2.ListKvSnapshotLeasesResponse.FromString(b"".join(heard.responses))
    assert [each.lease_id for each in answer.leases] == sorted(
        lease.lease_id
        for lease in everything.leases
        if any(shown(everything.tables[bucket.table_id].path, patterns) for bucket in lease.snapshots)
    )
    assert not answer.next_page_token


@cases("patterns", GRANTS)
def test_outcomes_of_leases(everything: Everything, server: TokenServer, patterns: list[str]) -> None:
    """Who may not see one of a lease's tables is refused."""
    for lease_id in ("even", "odd", *(each.lease_id for each in everything.leases)):
        under = {each.path for each in everything.rounds if each.lease_id == lease_id}
        pinned = {
            everything.tables[bucket.table_id].path
            for lease in everything.leases
            if lease.lease_id == lease_id
            for bucket in lease.snapshots
        }
        outcome = lake_tiering_pb2.GetLeaseOutcomeRequest(lease_id=lease_id)
        listed = kv_snapshot_leases_pb2.ListKvSnapshotLeasesRequest(lease_id=lease_id)
        rounds = lake_tiering_pb2.ListTieringRoundsRequest(lease_id=lease_id)
        calls = (("GetLeaseOutcome", outcome), ("ListKvSnapshotLeases", listed), ("ListTieringRounds", rounds))
        for name, request in calls:
            heard = ask(server, ",".join(patterns), name, request)
            if not all(shown(path, patterns) for path in under | pinned):
                assert heard.status is grpc.StatusCode.PERMISSION_DENIED
            else:
                assert heard == ask(server, "all", name, request)


def test_a_stream_of_statuses_tells_of_no_other_table(server: TokenServer, admin: TieringClient) -> None:
    """It tells of tables of the scope that are created later, and of their end, and of no others."""
    with server.client("a.*") as client:
        stream = client.watch_tiering_statuses()
        first = next(stream)
        assert {each.path.database for each in first.statuses} <= {"a"}
        heard: set[TablePath] = set()
        removed: set[TablePath] = set()
        for database in ("b", "a"):
            later = TablePath(database, "later")
            admin.create_table(later, descriptor(freshness="0s"))
            admin.claim_tables([later], "later", None, "driver")
            admin.drop_table(later)
        admin.create_table(TablePath("b", "last"), descriptor())
        admin.create_table(TablePath("a", "last"), descriptor())
        while TablePath("a", "last") not in heard:
            changes = next(stream)
            heard |= {each.path for each in changes.statuses}
            removed |= set(changes.removed)
        assert {each.database for each in heard | removed} == {"a"}
        assert TablePath("a", "later") in removed
        for path in (TablePath("b", "last"), TablePath("a", "last")):
            admin.drop_table(path)
