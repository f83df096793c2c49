"""The asyncio client gets the same answers as the blocking client."""

from __future__ import annotations

import asyncio

import pytest

from engine_support import HOUR, ServerProcess, new_table
from fluss_tiering.client import AsyncTieringClient, TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseDrop, TieringState


async def test_waiting_on_a_round(server: ServerProcess, client: TieringClient) -> None:  # S25
    table = new_table(client, [1])
    older = lease_latest_snapshots(client, "async", [table.path], HOUR).attempt_token
    token = lease_latest_snapshots(client, "async", [table.path], HOUR).attempt_token
    client.claim_tables([table.path], "async", token, "d")
    async with AsyncTieringClient(server.target) as waiting:
        assert await waiting.list_leases("async") == client.list_leases("async")
        assert await waiting.list_tiering_statuses(table.path) == client.list_tiering_statuses(table.path)
        outcomes = await asyncio.gather(*(waiting.lease_outcome("async", token) for _ in range(20)))
        assert {each.rounds[0].state for each in outcomes} == {TieringState.TIERING}
        assert await waiting.cancel_tiering("async", older, "late") is False
        assert await waiting.cancel_tiering("async", token, "stopped by hand") is True
        outcome = await waiting.lease_outcome("async", token)
        assert (outcome.cancelled_reason, outcome.rounds[0].state) == ("stopped by hand", TieringState.FAILED)
        assert await waiting.list_tiering_rounds(lease_id="async") == list(outcome.rounds)
        assert await waiting.drop_lease("async", attempt_token=token) is LeaseDrop.DROPPED


async def test_errors_are_the_same(server: ServerProcess) -> None:
    async with AsyncTieringClient(server.target) as waiting:
        with pytest.raises(FlussTieringError) as refused:
            await waiting.list_tiering_statuses(TablePath("db", "unknown"))
    assert refused.value.code is ErrorCode.TABLE_NOT_EXIST
    assert "db.unknown" in refused.value.message
