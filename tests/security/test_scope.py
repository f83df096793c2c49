"""Roles for some tables: each call about another table is refused, whether or not there is such a table."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import grpc
import pytest
from callers import METHODS
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from scoped_calls import Answer, Named, ask, method, requests

from cases import cases
from engine_support import HOUR, VirtualClock, descriptor, put
from fluss_tiering.api.v1 import common_pb2, kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.edge.callers.identity import Identity, scope_of
from fluss_tiering.server.edge.callers.roles import Grant, Role
from fluss_tiering.server.edge.methods import Kind, names_in
from fluss_tiering.wire.tables import path_to_pb
from token_support import TokenServer

OUTSIDE = TablePath("hr", "salaries")
INSIDE = TablePath("shop", "orders")

NAMES = st.text("ab_-", min_size=1, max_size=4).filter(lambda name: not name.startswith("__"))
PATTERNS = st.one_of(st.just("*"), st.tuples(*[st.text("ab_*-", min_size=1, max_size=4)] * 2).map(".".join))
INCLUDED = {
    "reader": {"reader"},
    "writer": {"reader", "writer"},
    "tierer": {"reader", "tierer"},
    "operator": {"reader", "tierer", "operator"},
    "admin": {"reader", "writer", "tierer", "operator", "admin"},
}


@given(
    grants=st.lists(st.tuples(st.sampled_from(sorted(INCLUDED)), PATTERNS), max_size=4),
    role=st.sampled_from(sorted(INCLUDED)),
    tables=st.lists(st.builds(TablePath, NAMES, NAMES), min_size=1, max_size=8),
)
@settings(max_examples=500, deadline=None)
@pytest.mark.slow
def test_a_scope_is_the_union_of_the_patterns(
    grants: list[tuple[str, str]], role: str, tables: list[TablePath]
) -> None:
    parsed = tuple(Grant.parse(*each) for each in grants)
    scope, identity = scope_of(parsed, Role(role)), Identity("token/x", parsed)
    patterns = [pattern for granted, pattern in grants if role in INCLUDED[granted]]
    assert (scope is None) == identity.has_for_all(Role(role)) == ("*" in patterns)
    for path in tables:
        shown = any(
            pattern == "*"
            or (fnmatchcase(path.database, pattern.split(".")[0]) and fnmatchcase(path.table, pattern.split(".")[1]))
            for pattern in patterns
        )
        assert (scope is None or path in scope) == shown
        assert scope is None or (path in scope) == shown, "the second time too"


KNOWN = {
    "PbTablePath.database_name": "a path",
    "PbTablePath.table_name": "a path",
    "ListTablesRequest.database_name": "a part of what is listed",
    "PbTableBucket.table_id": "an id",
    "PbKvSnapshotLeaseForTable.table_id": "an id",
    "PbKvSnapshotRef.table_id": "an id",
    "PbScanReqForBucket.table_id": "an id",
    "PbHeartbeatReqForTable.table_id": "an id",
    "PbTableOffsets.table_id": "an id",
    "PbLakeMaintenance.table_id": "an id",
    "PbLakeTableSnapshotInfo.table_id": "an id",
    "PbLakeTableSnapshotMetadata.table_id": "the id that `tables_req` has too",
    "LakeTieringHeartbeatRequest.force_finished_tables": "ids that `finished_tables` has too",
    "AcquireKvSnapshotLeaseRequest.lease_id": "a lease",
    "ReleaseKvSnapshotLeaseRequest.lease_id": "a lease",
    "DropKvSnapshotLeaseRequest.lease_id": "a lease",
    "ListKvSnapshotLeasesRequest.lease_id": "a lease",
    "PbLeaseRenewal.lease_id": "a lease",
    "LakeTieringHeartbeatRequest.lease_id": "a lease",
    "ClaimTablesRequest.lease_id": "a lease",
    "CancelTieringRequest.lease_id": "a lease",
    "ListTieringRoundsRequest.lease_id": "a lease",
    "GetLeaseOutcomeRequest.lease_id": "a lease",
    "AcquireKvSnapshotLeaseRequest.lease_duration_ms": "names nothing",
    "PbLeaseRenewal.lease_duration_ms": "names nothing",
    "ScanKvRequest.scanner_id": "a scanner",
    "PbLakeTableSnapshotMetadata.tiered_bucket_offsets_file_path": "a file of the table that the entry names",
    "PbLakeTableSnapshotMetadata.readable_bucket_offsets_file_path": "nobody reads it",
}
"""The fields of requests that may name a table or a lease, and what they name."""
SCALARS = {FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES}


def naming_fields(message: Descriptor, seen: frozenset[str] = frozenset()) -> set[str]:
    """Return the fields of a request, at any depth, whose names tell that they may name a table or a lease."""
    if message.full_name in seen:
        return set()
    found = set()
    for field in message.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            found |= naming_fields(field.message_type, seen | {message.full_name})
        elif field.type in SCALARS and any(
            word in field.name for word in ("database", "table", "lease", "path", "scanner")
        ):
            found.add(f"{message.name}.{field.name}")
    return found


def test_each_way_to_name_a_table_is_known() -> None:
    """Who adds a field adds it to `requests` too, so that the tests below look at what it may tell."""
    assert {field for each in METHODS.values() for field in naming_fields(each.input_type)} == KNOWN.keys()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    roles = {
        "all": ["admin"],
        "shop": ["admin=shop.*"],
        "mixed": ["tierer=shop.*", "reader=*.*"],
        "none": ["admin=nothing.here"],
    }
    with TokenServer(tmp_path_factory.mktemp("scoped"), roles, clock=VirtualClock()) as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: TokenServer) -> Iterator[TieringClient]:
    with server.client("all") as client:
        yield client


def answers(server: TokenServer, named: Named) -> dict[str, list[Answer]]:
    return {
        name: [ask(server, "shop", name, each, 1 if name.startswith("Watch") else 100) for each in some]
        for name, some in requests(named).items()
    }


def filled(client: TieringClient, path: TablePath, lease_id: str) -> TableInfo:
    """Create a table with everything that a table can have: a lake snapshot, a lease, an ended and a running round."""
    table = client.create_table(path, descriptor(freshness="0s"))
    bucket = TableBucket(table.table_id, 0)
    put(client, table, {1: "one", 2: "two"})
    client.take_kv_snapshots([path])
    lease_latest_snapshots(client, lease_id, [path], HOUR)
    for number in range(2):
        (claim,) = client.claim_tables([path], lease_id, None, "driver")
        assert isinstance(claim, Claim)
        if number == 0:
            offsets = client.prepare_lake_snapshot(table, claim.tiering_epoch, {bucket: 2})
            client.commit_lake_snapshot(table, claim.tiering_epoch, 5, {bucket: 2}, offsets, "commit")
            client.heartbeat(finished=[HeartbeatEntry(claim.table_id, claim.tiering_epoch)])
    return table


@pytest.fixture(scope="module")
def twice(server: TokenServer, admin: TieringClient) -> dict[str, list[tuple[Answer, Answer]]]:
    """The answers to the same requests about a table of others: while it does not exist, and when it does."""
    inside = filled(admin, INSIDE, "shop-lease")
    named = Named(OUTSIDE, inside.table_id + 1, "hr-lease")
    before = answers(server, named)
    outside = filled(admin, OUTSIDE, named.lease_id)
    assert outside.table_id == named.table_id
    (info,) = admin.list_buckets([OUTSIDE])[OUTSIDE]
    assert info.latest_kv_snapshot is not None
    assert info.latest_kv_snapshot.snapshot_id == named.snapshot_id
    after = answers(server, named)
    status = admin.list_tiering_statuses(OUTSIDE)
    assert [each.state.value for each in status] == ["Tiering"], "nothing was done to it"
    assert [each.lease_id for each in admin.list_leases("hr-lease")] == ["hr-lease"]
    return {name: list(zip(before[name], after[name], strict=True)) for name in before}


def test_there_is_a_request_of_each_method() -> None:
    assert {method(name) for name in requests(Named(INSIDE, 1, "lease"))} == set(METHODS)


@cases("path", METHODS)
def test_a_call_about_a_table_of_others_is_refused(twice: dict[str, list[tuple[Answer, Answer]]], path: str) -> None:
    """A list leaves the table out. Ids and leases that nobody knows are left to the services."""
    name = METHODS[path].name
    for request, (missing, there) in zip(requests(Named(OUTSIDE, 2, "hr-lease"))[name], twice[name], strict=True):
        kinds = {kind for kind, _ in names_in(request)}
        if kinds:
            assert there.status is grpc.StatusCode.PERMISSION_DENIED
            assert not there.responses
            assert f"may not call {name} for " in there.details
            assert "is for other tables only; ask an administrator" in there.details
        if Kind.PATH in kinds or not kinds:
            assert there == missing
        else:
            assert missing.status is not grpc.StatusCode.PERMISSION_DENIED
            assert str(OUTSIDE) not in there.details, "an id does not tell the path"


LEASE_CALLS = [
    *("RenewKvSnapshotLeases", "ListKvSnapshotLeases", "ReleaseKvSnapshotLease", "DropKvSnapshotLease"),
    *("CancelTiering", "ListTieringRounds", "GetLeaseOutcome"),
]
READS = [
    *("ListTables", "GetTables", "ListBuckets", "GetKvSnapshotMetadata", "FetchLog", "FetchKvSnapshot", "ScanKv"),
    *("ListKvSnapshotLeases", "GetLakeSnapshot", "ListTieringStatuses", "WatchTieringStatuses", "ListTieringRounds"),
    *("GetLeaseOutcome", "LakeTieringHeartbeat", "CreateReadToken"),
]


@cases("name", READS)
def test_the_same_request_tells_others_of_the_table(
    twice: dict[str, list[tuple[Answer, Answer]]], server: TokenServer, name: str
) -> None:
    """So it is the scope that keeps the table out of the answers above."""
    some = requests(Named(OUTSIDE, 2, "hr-lease"))[name]
    told = [ask(server, "all", name, each, 1) for each in some]
    assert told != [there for _, there in twice[name]]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("path", METHODS)
def test_a_table_of_the_scope_is_served_as_to_everybody(
    server: TokenServer,
    admin: TieringClient,
    path: str,
) -> None:
    """A caller with the role for the table gets what one with the role for all tables gets, on a table like it."""
    name = METHODS[path].name
    heard = []
    for number, token in enumerate(("shop", "all")):
        table = filled(admin, TablePath("shop", f"{name}_{number}".lower()), f"{name}-{number}")
        offsets = admin.prepare_lake_snapshot(table, 2, {TableBucket(table.table_id, 0): 2})
        named = Named(table.path, table.table_id, f"{name}-{number}", epoch=2, offsets_path=offsets)
        if name == "CreateTable":
            admin.drop_table(table.path, drop_untiered=True)
        some = [ask(server, token, name, each, 1) for each in requests(named)[name]]
        heard.append([(each.status, len(each.responses), b"error" in b"".join(each.responses)) for each in some])
        admin.drop_table(table.path, ignore_if_not_exists=True, drop_untiered=True)
    assert heard[0] == heard[1]
    assert heard[0][0][0] is grpc.StatusCode.OK or name in {"DropPartition", "CommitLakeTableSnapshot"}


def test_a_caller_may_have_a_role_for_fewer_tables_than_another(twice: object, server: TokenServer) -> None:
    """`mixed` reads all tables, and tiers those of the shop."""
    named = requests(Named(OUTSIDE, 2, "other"))
    read = ask(server, "mixed", "GetTables", named["GetTables"][0])
    assert read.status is grpc.StatusCode.OK
    claimed = ask(server, "mixed", "ClaimTables", named["ClaimTables"][0])
    assert claimed.status is grpc.StatusCode.PERMISSION_DENIED
    assert "may not call ClaimTables for table hr.salaries: its role tierer is for other tables" in claimed.details


def test_one_table_of_others_refuses_the_whole_call(twice: object, server: TokenServer, admin: TieringClient) -> None:
    seen = admin.create_table(TablePath("shop", "seen"), descriptor(freshness="0s"))
    request = lake_tiering_pb2.ClaimTablesRequest(
        table_paths=[path_to_pb(seen.path), path_to_pb(TablePath("hr", "nothing"))], lease_id="one of two"
    )
    answer = ask(server, "shop", "ClaimTables", request)
    assert answer.status is grpc.StatusCode.PERMISSION_DENIED
    assert "table hr.nothing" in answer.details
    assert not admin.list_tiering_rounds(seen.path), "nothing was claimed"


def test_the_table_with_the_id_0_is_named_too() -> None:
    """In proto3, a number that is 0 and one that is not set are the same. Ids of a cluster's tables begin with 0."""
    for request in (
        tables_pb2.FetchLogRequest(bucket=common_pb2.PbTableBucket(bucket_id=3)),
        kv_scan_pb2.ScanKvRequest(bucket_scan_req=kv_scan_pb2.PbScanReqForBucket()),
        lake_tiering_pb2.LakeTieringHeartbeatRequest(tiering_tables=[lake_tiering_pb2.PbHeartbeatReqForTable()]),
    ):
        assert list(names_in(request)) == [(Kind.TABLE_ID, 0)]
    assert not list(names_in(kv_scan_pb2.ScanKvRequest(scanner_id=b"1"))), "a scanner is its owner's"


def test_only_a_table_of_the_scope_is_handed_out(twice: object, server: TokenServer, admin: TieringClient) -> None:
    waiting = [admin.create_table(TablePath(name, "pending"), descriptor(freshness="0s")) for name in ("hr", "shop")]
    for table in waiting:
        put(admin, table, {1: "one"})
    admin.resume_tables([table.path for table in waiting], include_scheduled=True)
    request = lake_tiering_pb2.LakeTieringHeartbeatRequest(request_table=True, lease_id="any table")
    handed = set()
    while True:
        answer = ask(server, "shop", "LakeTieringHeartbeat", request)
        response = lake_tiering_pb2.LakeTieringHeartbeatResponse.FromString(answer.responses[0])
        if not response.HasField("tiering_table"):
            break
        handed.add(response.tiering_table.table_path.database_name)
    assert handed == {"shop"}
    none = ask(server, "none", "LakeTieringHeartbeat", request)
    assert none.status is grpc.StatusCode.PERMISSION_DENIED, "the lease has tables now"


def test_a_lease_with_a_table_of_others_is_not_to_be_used(
    twice: object, server: TokenServer, admin: TieringClient
) -> None:
    """It also has a table of the caller. It is neither shown nor changed, and nothing new begins under its id."""
    own = admin.create_table(TablePath("shop", "lease_user"), descriptor(freshness="0s"))
    (outside,) = admin.get_tables([OUTSIDE])
    admin.claim_tables([own.path], "hr-lease", None, "driver")
    before = admin.list_leases("hr-lease"), admin.lease_outcome("hr-lease")
    assert {each.path for each in before[1].rounds} == {own.path, outside.path}
    named = requests(Named(own.path, own.table_id, "hr-lease"))
    claim = lake_tiering_pb2.ClaimTablesRequest(table_paths=[path_to_pb(own.path)], lease_id="hr-lease")
    beat = lake_tiering_pb2.LakeTieringHeartbeatRequest(request_table=True, lease_id="hr-lease")
    acquire = kv_snapshot_leases_pb2.AcquireKvSnapshotLeaseRequest(
        lease_id="hr-lease", lease_duration_ms=1000, allow_empty=True
    )
    asked = [("ClaimTables", claim), ("LakeTieringHeartbeat", beat), ("AcquireKvSnapshotLease", acquire)]
    asked += [(name, each) for name in LEASE_CALLS for each in named[name] if Kind.LEASE in dict(names_in(each))]
    for name, request in asked:
        answer = ask(server, "shop", name, request)
        assert answer.status is grpc.StatusCode.PERMISSION_DENIED, name
        assert "for lease hr-lease, which has tables of others" in answer.details
    assert (admin.list_leases("hr-lease"), admin.lease_outcome("hr-lease")) == before


def test_a_scanner_is_its_owners(twice: object, server: TokenServer, admin: TieringClient) -> None:
    table = admin.create_table(TablePath("shop", "scanned"), descriptor())
    put(admin, table, dict.fromkeys(range(100), "x" * 100))

    def scan(token: str, **request: object) -> Answer:
        asked = kv_scan_pb2.ScanKvRequest(batch_size_bytes=500, **request)  # type: ignore[arg-type]
        return ask(server, token, "ScanKv", asked)

    opened = scan("shop", bucket_scan_req=kv_scan_pb2.PbScanReqForBucket(table_id=table.table_id, bucket_id=0))
    scanner_id = kv_scan_pb2.ScanKvResponse.FromString(opened.responses[0]).scanner_id
    unknown = bytes(len(scanner_id))
    stolen = scan("all", scanner_id=scanner_id, call_seq_id=1)
    missing = scan("all", scanner_id=unknown, call_seq_id=1)
    assert dict(stolen.metadata)["fluss-error-code"] == "UNKNOWN_SCANNER_ID"
    assert stolen.details.replace(scanner_id.hex(), unknown.hex()) == missing.details
    assert (stolen.responses, stolen.status, stolen.metadata) == (missing.responses, missing.status, missing.metadata)
    assert scan("all", scanner_id=scanner_id, close_scanner=True) == scan("all", scanner_id=unknown, close_scanner=True)
    assert scan("shop", scanner_id=scanner_id, call_seq_id=1).status is grpc.StatusCode.OK, "it is still open"
    assert scan("shop", scanner_id=scanner_id, close_scanner=True).status is grpc.StatusCode.OK
    assert scan("shop", scanner_id=scanner_id, call_seq_id=2).status is not grpc.StatusCode.OK
