"""Answers in pages: together they are the answer to a client that asks for everything, and none is much work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cases import cases
from engine_support import HOUR, ServerThread, descriptor, put
from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import KvSnapshotLeasesStub
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringStub
from fluss_tiering.api.v1.tables_pb2_grpc import TablesStub
from fluss_tiering.client import TieringClient, connection, lease_latest_snapshots
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.services import lake_tiering
from fluss_tiering.wire.tables import path_to_pb
from needs import needs

# Their order by name, by id, and by the letters of a database's language differ.
PATHS = [TablePath(database, name) for database in ("b", "B", "a_b", "a") for name in ("t2", "t1", "T", "t_", "t")]
ROUNDS = 3


@pytest.fixture(scope="module")
@needs("system")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with tables, rounds and leases."""
    folder: Path = tmp_path_factory.mktemp("pages")
    with ServerThread(folder / "data") as server:
        with TieringClient(server.target) as client:
            for path in PATHS:
                put(client, client.create_table(path, descriptor(freshness="0s")), {1: "one"})
            for number in range(ROUNDS):
                for lease_id, some in (("even", PATHS[::2]), ("odd", PATHS[1::2])):
                    claims = client.claim_tables(some, lease_id, None, f"driver {number}")
                    entries = [HeartbeatEntry(c.table_id, c.tiering_epoch) for c in claims if isinstance(c, Claim)]
                    client.heartbeat(finished=entries)
            rows = client.take_kv_snapshots(PATHS)
            assert len(rows) == len(PATHS)
            for number, path in enumerate(PATHS):
                lease_latest_snapshots(client, f"lease {number}", [path], HOUR)
        yield server.target


@pytest.fixture
def channel(target: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(target) as opened:
        yield opened


def pages(method: Any, request: Any, field: str, size: int) -> list[list[Any]]:
    """The entries of each page."""
    asked = type(request)(page_size=size)
    asked.MergeFrom(request)
    found = []
    while True:
        response = method(asked, timeout=30)
        found.append(list(getattr(response, field)))
        if not response.next_page_token:
            return found
        asked.page_token = response.next_page_token


LISTS: dict[str, tuple[type, str]] = {
    "ListTieringStatuses": (LakeTieringStub, "tiering_statuses"),
    "ListTables": (TablesStub, "tables"),
    "ListKvSnapshotLeases": (KvSnapshotLeasesStub, "leases"),
    "ListTieringRounds": (LakeTieringStub, "rounds"),
}


@cases(
    "asked",
    [
        lake_tiering_pb2.ListTieringStatusesRequest(),
        tables_pb2.ListTablesRequest(),
        tables_pb2.ListTablesRequest(database_name="a"),
        kv_snapshot_leases_pb2.ListKvSnapshotLeasesRequest(),
        lake_tiering_pb2.ListTieringRoundsRequest(limit=2),
        lake_tiering_pb2.ListTieringRoundsRequest(lease_id="odd"),
        lake_tiering_pb2.ListTieringRoundsRequest(table_path=path_to_pb(PATHS[3])),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000, 2_000_000_000])
def test_pages_are_the_whole(channel: grpc.Channel, asked: Any, size: int) -> None:  # D5
    name = asked.DESCRIPTOR.name.removesuffix("Request")
    stub, field = LISTS[name]
    method = getattr(stub(channel), name)
    whole_answer = method(asked, timeout=30)
    assert not whole_answer.next_page_token, "who knows no pages gets all"
    whole = list(getattr(whole_answer, field))
    assert whole
    found = pages(method, asked, field, size)
    entries = [each for page in found for each in page]
    if field != "rounds":
        assert entries == whole
        assert all(len(page) <= size for page in found)
    else:
        # A page has whole tables, in the order of their ids.
        assert sorted(map(str, entries)) == sorted(map(str, whole))
        assert all(len(page) < size + (asked.limit or 20) for page in found)
        by_path = sorted(entries, key=lambda each: (each.table_path.database_name, each.table_path.table_name))
        assert by_path == whole


def test_rounds_are_in_the_order_of_paths_and_the_newest_first(target: str) -> None:  # D5, S23
    with TieringClient(target) as client:
        rounds = client.list_tiering_rounds(limit=2)
        assert [each.path for each in rounds] == [path for path in sorted(PATHS) for _ in range(2)]
        assert [each.tiering_epoch for each in rounds] == [ROUNDS, ROUNDS - 1] * len(PATHS)
        assert {each.path for each in client.lease_outcome("even").rounds} == set(PATHS[::2])


def test_the_client_reads_all_pages(target: str, monkeypatch: pytest.MonkeyPatch) -> None:  # D5
    with TieringClient(target) as client:
        whole = client.list_tables(), client.list_leases(), client.list_tiering_rounds()
        monkeypatch.setattr(connection, "PAGE_SIZE", 3)
        assert (client.list_tables(), client.list_leases(), client.list_tiering_rounds()) == whole


# D5
def test_the_server_looks_at_some_tables_at_a_time(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    original = lake_tiering.LakeTieringServicer._rounds

    async def look(*arguments: Any) -> Any:
        page = await original(*arguments)
        looks.append(len({each.table_id for each in page.rounds}))
        return page

    monkeypatch.setattr(lake_tiering.LakeTieringServicer, "_rounds", look)
    monkeypatch.setattr(lake_tiering, "_TABLES_AT_ONCE", 4)
    with TieringClient(target) as client:
        assert len(client.list_tiering_rounds(limit=1)) == len(PATHS)
        assert len(looks) >= len(PATHS) // 4
        assert max(looks) == 4
        looks.clear()
        # More rounds of each table are fewer tables at a time.
        monkeypatch.setattr(lake_tiering, "_ROUNDS_AT_ONCE", 6)
        client.list_tiering_rounds(limit=3)
        assert max(looks) == 2
        assert {each.path for each in client.lease_outcome("odd").rounds} == set(PATHS[1::2])


@pytest.mark.parametrize(("field", "value"), [("page_size", -1), ("page_token", "x"), ("page_token", "9" * 30)])
def test_wrong_pages_are_refused(channel: grpc.Channel, field: str, value: Any) -> None:  # D5
    request = lake_tiering_pb2.ListTieringRoundsRequest(**{field: value})
    with pytest.raises(grpc.RpcError) as refused:
        LakeTieringStub(channel).ListTieringRounds(request, timeout=30)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert field in refused.value.details()
