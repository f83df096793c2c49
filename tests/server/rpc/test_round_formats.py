"""A driver whose rounds have another format gets no table, whichever way it asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.api.v1 import lake_tiering_pb2
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringStub
from fluss_tiering.client import TieringClient
from fluss_tiering.client import tiering_calls as calls
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import ROUND_FORMAT, TieringState
from fluss_tiering.wire.tables import path_to_pb

pytestmark = pytest.mark.system
LEASE = "a-lease"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    with ServerThread(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(server: ServerThread) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected


@pytest.mark.parametrize("other", [ROUND_FORMAT - 1, ROUND_FORMAT + 1])
def test_a_driver_of_another_format_gets_no_table(
    client: TieringClient, monkeypatch: pytest.MonkeyPatch, other: int
) -> None:
    table = new_table(client, [1])
    client.resume_tables([table.path], include_scheduled=True)
    client.acquire_lease(LEASE, 60_000, {}, allow_empty=True)
    monkeypatch.setattr(calls, "ROUND_FORMAT", other)
    for ask in (
        lambda: client.claim_tables([table.path], LEASE, None, "driver"),
        lambda: client.heartbeat(request_table=True),
    ):
        with pytest.raises(
            FlussTieringError, match=f"of the format {other}: expected {ROUND_FORMAT}, .*same version"
        ) as it:
            ask()
        assert it.value.code is ErrorCode.UNSUPPORTED_ROUND_FORMAT
    assert client.heartbeat().claim is None, "the heartbeat of a driver that asks for no table is no round"
    (status,) = client.list_tiering_statuses(table.path)
    assert status.state is TieringState.PENDING
    assert client.list_tiering_rounds(table.path) == []
    monkeypatch.undo()
    claim = client.heartbeat(request_table=True).claim
    assert claim is not None
    assert claim.table_id == table.table_id


def test_a_caller_that_names_no_format_gets_tables(client: TieringClient, server: ServerThread) -> None:
    by_name, by_heartbeat = new_table(client, [1]), new_table(client, [1])
    client.resume_tables([by_heartbeat.path], include_scheduled=True)
    client.acquire_lease(LEASE, 60_000, {}, allow_empty=True)
    with grpc.insecure_channel(server.target) as channel:
        stub = LakeTieringStub(channel)
        paths = [path_to_pb(by_name.path)]
        (claim,) = stub.ClaimTables(
            lake_tiering_pb2.ClaimTablesRequest(table_paths=paths, lease_id=LEASE), timeout=30
        ).claims
        assert claim.table_id == by_name.table_id
        answer = stub.LakeTieringHeartbeat(lake_tiering_pb2.LakeTieringHeartbeatRequest(request_table=True), timeout=30)
    assert answer.tiering_table.table_id == by_heartbeat.table_id
