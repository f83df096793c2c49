"""What the fuzz's model has to know so that it calls no right answer wrong, tried with a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import grpc
import pytest

from engine_support import ServerThread, new_table
from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringStub
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableInfo
from fluss_tiering.server.core.tiering.states import MAX_CONSECUTIVE_FAILURES, MAX_INTERRUPTIONS
from fluss_tiering.wire.tables import path_to_pb
from fuzz.model import Model

Serving: TypeAlias = tuple[TieringClient, LakeTieringStub, TableInfo]
"""A client of a server, the stub of its rounds, and a table."""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with (
        ServerThread(tmp_path / "data") as running,
        TieringClient(running.target) as client,
        grpc.insecure_channel(running.target) as channel,
    ):
        yield client, LakeTieringStub(channel), new_table(client)


@pytest.mark.parametrize("kind", ["tiering_tables", "finished_tables", "failed_tables"])
def test_a_claim_that_parks_its_table_ends_the_round_before(serving: Serving, kind: str) -> None:  # D16, S19
    _, stub, table = serving
    model = Model()
    claim = pb.ClaimTablesRequest(table_paths=[path_to_pb(table.path)], lease_id="X")
    last = MAX_INTERRUPTIONS + MAX_CONSECUTIVE_FAILURES
    for epoch in range(1, last + 2):
        claimed = stub.ClaimTables(claim)
        assert list(model.judge("ClaimTables", claim, claimed)) == []
        assert claimed.claims[0].HasField("error") is (epoch > last)
    entry = pb.PbHeartbeatReqForTable(table_id=table.table_id, tiering_epoch=last)
    report = pb.LakeTieringHeartbeatRequest(**{kind: [entry]})
    assert list(model.judge("LakeTieringHeartbeat", report, stub.LakeTieringHeartbeat(report))) == []
    assert model.judged["parked"] == 1


@pytest.mark.parametrize("unheard", [True, False])
def test_a_drop_whose_answer_nobody_heard_may_come_in_the_middle_of_a_round(serving: Serving, unheard: bool) -> None:
    client, stub, table = serving
    model = Model()
    drop = tables_pb2.DropTableRequest(table_path=path_to_pb(table.path))
    if unheard:
        model.unheard("DropTable", drop)
    claim = pb.ClaimTablesRequest(table_paths=[path_to_pb(table.path)], lease_id="X")
    assert list(model.judge("ClaimTables", claim, stub.ClaimTables(claim))) == []
    client.drop_table(table.path)
    entry = pb.PbHeartbeatReqForTable(table_id=table.table_id, tiering_epoch=1)
    report = pb.LakeTieringHeartbeatRequest(tiering_tables=[entry])
    wrong = list(model.judge("LakeTieringHeartbeat", report, stub.LakeTieringHeartbeat(report)))
    assert [("TABLE_NOT_EXIST" in each) for each in wrong] == ([] if unheard else [True])
