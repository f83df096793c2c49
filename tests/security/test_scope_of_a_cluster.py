"""Roles for some tables of a real Fluss cluster: a table that a caller may not see is one that does not exist."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import grpc
from scoped_calls import Named, ask, method, requests

from engine_support import HOUR, ServerThread, descriptor, put
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import Claim
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile

OUTSIDE = TablePath("scope_hr", "salaries")
OF_THE_CLUSTER = {"DescribeStorage", "GetClusterHealth"}
"""Methods whose answers are about no table, and change with other tests of the same cluster."""


def test_a_hidden_table_of_a_cluster_is_one_that_does_not_exist(fluss_cluster: FlussCluster, tmp_path: Path) -> None:
    file, texts = TokenFile(tmp_path / "tokens.json"), {}
    for name, role in (("all", "admin"), ("shop", "admin=scope_shop.*")):
        token, texts[name] = StaticToken.create(name, [Grant.parse(*role.split("="))], datetime.now(UTC), None)
        file.add(token)
    settings = {"fluss": fluss_cluster.bootstrap, "metrics_enabled": False, "tokens_file": file.path}
    with (
        ServerThread(tmp_path / "data", **settings) as server,
        TieringClient(server.target, security=ClientSecurity(token=texts["all"])) as admin,
        grpc.insecure_channel(server.target) as channel,
    ):
        last = admin.create_table(TablePath("scope_shop", "orders"), descriptor(freshness="1h"))
        named = Named(OUTSIDE, last.table_id + 1, "scope-hr-lease")

        def answers() -> dict[str, object]:
            return {
                f"{name} {number}": ask(
                    channel, method(name), texts["shop"], each, 1 if name.startswith("Watch") else 9
                )
                for name, some in requests(named).items()
                if name not in OF_THE_CLUSTER
                for number, each in enumerate(some)
            }

        before = answers()
        outside = admin.create_table(OUTSIDE, descriptor(freshness="1h"))
        assert outside.table_id == named.table_id
        put(admin, outside, {1: "one"})
        admin.acquire_lease(named.lease_id, HOUR, {}, allow_empty=True)
        (claim,) = admin.claim_tables([OUTSIDE], named.lease_id, None, "driver")
        assert isinstance(claim, Claim)
        assert admin.prepare_lake_snapshot(outside, claim.tiering_epoch, {TableBucket(outside.table_id, 0): 1})
        assert answers() == before
        assert admin.list_tiering_statuses(OUTSIDE)[0].tiering_epoch == claim.tiering_epoch
        for path in (OUTSIDE, last.path):
            admin.drop_table(path, drop_untiered=True)
