"""Roles for some tables of a real Fluss cluster: a call about another table is refused."""

from __future__ import annotations

from pathlib import Path

import grpc
from scoped_calls import Named, ask, requests

from engine_support import HOUR, descriptor, put
from fluss_support import FlussCluster
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import Claim
from fluss_tiering.server.edge.methods import names_in
from token_support import TokenServer

OUTSIDE = TablePath("scope_hr", "salaries")


def test_a_call_about_a_table_of_others_is_refused(fluss_cluster: FlussCluster, tmp_path: Path) -> None:
    roles = {"all": ["admin"], "shop": ["admin=scope_shop.*"]}
    settings = {"fluss": fluss_cluster.bootstrap, "metrics_enabled": False}
    with TokenServer(tmp_path, roles, **settings) as server, server.client("all") as admin:
        own = admin.create_table(TablePath("scope_shop", "orders"), descriptor(freshness="1h"))
        outside = admin.create_table(OUTSIDE, descriptor(freshness="1h"))
        put(admin, outside, {1: "one"})
        admin.acquire_lease("scope-hr-lease", HOUR, {}, allow_empty=True)
        (claim,) = admin.claim_tables([OUTSIDE], "scope-hr-lease", None, "driver")
        assert isinstance(claim, Claim)
        assert admin.prepare_lake_snapshot(outside, claim.tiering_epoch, {TableBucket(outside.table_id, 0): 1})
        for name, some in requests(Named(OUTSIDE, outside.table_id, "scope-hr-lease")).items():
            for request in some:
                answer = ask(server, "shop", name, request, 1 if name.startswith("Watch") else 9)
                if any(names_in(request)):
                    assert answer.status is grpc.StatusCode.PERMISSION_DENIED, name
                else:
                    assert b"salaries" not in b"".join(answer.responses), name
        assert admin.list_tiering_statuses(OUTSIDE)[0].tiering_epoch == claim.tiering_epoch
        for path in (OUTSIDE, own.path):
            admin.drop_table(path, drop_untiered=True)
