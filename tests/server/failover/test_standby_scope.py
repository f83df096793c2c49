"""A standby server answers reads from the database to callers whose roles are for some tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from manager_support import Managers

from engine_support import HOUR
from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import KvSnapshotLeasesStub
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringStub
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.server.failover.standby import StandbyRole
from fluss_tiering.server.failover.standby_reads import read_handlers
from fluss_tiering.server.rpc.listener import RpcListener
from fluss_tiering.server.security.roles import Grant
from fluss_tiering.server.security.tokens import StaticToken, TokenFile
from fluss_tiering.server.settings import ServerSettings
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.wire.tables import path_to_pb


@pytest.fixture
def threads() -> Iterator[ServerThreads]:
    running = ServerThreads()
    yield running
    running.close()


async def test_a_standby_server_shows_callers_their_tables_only(
    managers: Managers, threads: ServerThreads, tmp_path: Path
) -> None:
    first, second = (managers.add_table(table_id, name=name) for table_id, name in ((1, "first"), (2, "second")))
    for lease_id in ("X", "Y"):
        managers.acquire(lease_id, HOUR, {TableBucket(1, 0): 3, TableBucket(2, 0): 4})
        managers.finish(managers.claim(first, lease_id))
        managers.fail(managers.claim(second, lease_id))
    tokens = TokenFile(tmp_path / "tokens.json")
    token, text = StaticToken.create("limited", [Grant.parse("reader", "db.f*")], datetime.now(UTC), None)
    tokens.add(token)
    listener = RpcListener(ServerSettings(data_dir=tmp_path, port=0, tokens_file=tokens.path))
    role = StandbyRole(read_handlers(threads, lambda: managers.store))
    role.follow(None, "nobody is active")
    listener.serve(role)
    await listener.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{listener.port}") as channel:
            tiering, leases = LakeTieringStub(channel), KvSnapshotLeasesStub(channel)

            async def ask(method: Any, request: Any) -> Any:
                return await method(request, metadata=[("authorization", f"Bearer {text}")], timeout=20)

            statuses = await ask(tiering.ListTieringStatuses, lake_tiering_pb2.ListTieringStatusesRequest())
            assert [each.table_id for each in statuses.tiering_statuses] == [1]
            rounds = await ask(tiering.ListTieringRounds, lake_tiering_pb2.ListTieringRoundsRequest(page_size=1))
            assert {each.table_id for each in rounds.rounds} == {1}
            assert not rounds.next_page_token
            outcome = await ask(tiering.GetLeaseOutcome, lake_tiering_pb2.GetLeaseOutcomeRequest(lease_id="X"))
            assert {each.table_id for each in outcome.rounds} == {1}
            listed = await ask(leases.ListKvSnapshotLeases, kv_snapshot_leases_pb2.ListKvSnapshotLeasesRequest())
            pinned = {each.lease_id: [of.table_id for of in each.snapshots] for each in listed.leases}
            assert pinned == {"X": [1], "Y": [1]}
            request = lake_tiering_pb2.ListTieringStatusesRequest(table_path=path_to_pb(second.path))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(tiering.ListTieringStatuses, request)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            nowhere = lake_tiering_pb2.ListTieringStatusesRequest(table_path=path_to_pb(TablePath("db", "nowhere")))
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await ask(tiering.ListTieringStatuses, nowhere)
            said = str(unknown.value.details()).replace("nowhere", "second")
            assert refused.value.details() == said, "it does not tell that the table exists"
    finally:
        await listener.stop(0)
