"""The services over gRPC on the embedded storage: their answers, and how they refuse wrong requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from refusals import refused

from cases import cases
from engine_support import SCHEMA, ServerProcess, ServerThread, claimed, descriptor, new_path, new_table, put, refusal
from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import KvSnapshotLeasesStub
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringStub
from fluss_tiering.api.v1.tables_pb2_grpc import TablesStub
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TablePath, WriteKind
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, LeaseDrop, RoundOrigin, TieringState, TieringStats
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.wire.checks import MAX_ENTRIES

HOUR = 3_600_000
UNKNOWN_TABLE = TablePath("db", "unknown")


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target) as opened:
        yield opened


# Tables


def test_tables_are_created_listed_and_dropped(client: TieringClient) -> None:
    path = new_path()
    created = client.create_table(path, descriptor(num_buckets=2))
    assert client.get_tables([path]) == [created]
    assert created in client.list_tables("db")
    assert created not in client.list_tables("another")
    assert created.lake_catalog_properties["type"] == "jdbc"
    assert client.create_table(path, descriptor(), ignore_if_exists=True) == created
    assert refusal(lambda: client.create_table(path, descriptor())).code is ErrorCode.TABLE_ALREADY_EXIST
    client.drop_table(path)
    assert refusal(lambda: client.drop_table(path)).code is ErrorCode.TABLE_NOT_EXIST
    client.drop_table(path, ignore_if_not_exists=True)


def test_unknown_tables_are_named(client: TieringClient) -> None:
    for call in (
        lambda: client.get_tables([UNKNOWN_TABLE]),
        lambda: client.list_buckets([UNKNOWN_TABLE]),
        lambda: client.take_kv_snapshots([UNKNOWN_TABLE]),
        lambda: client.list_tiering_statuses(UNKNOWN_TABLE),  # S16
        lambda: next(client.watch_tiering_statuses([UNKNOWN_TABLE])),
        lambda: client.list_tiering_rounds(UNKNOWN_TABLE),
        lambda: client.lake_snapshot(UNKNOWN_TABLE),
        lambda: list(client.write_rows(UNKNOWN_TABLE, WriteKind.APPEND, [pa.table({"id": [1]})])),
    ):
        with refused(ErrorCode.TABLE_NOT_EXIST, "db.unknown"):
            call()


@pytest.mark.parametrize("freshness", ["soon", "3", "-1s"])
def test_a_table_with_wrong_options_is_not_made(client: TieringClient, freshness: str) -> None:
    path = new_path()
    with refused(ErrorCode.INVALID_TABLE, "table.datalake.freshness"):
        client.create_table(path, descriptor(freshness=freshness))
    assert refusal(lambda: client.get_tables([path])).code is ErrorCode.TABLE_NOT_EXIST


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"id": ["one"], "name": ["a"]}),
        pa.table({"name": ["a"]}),
        pa.table({"id": pa.array([None], pa.int64()), "name": ["a"]}),
        pa.table({"id": [1], "name": ["a"], "more": [1]}),
    ],
    ids=["wrong type", "no key", "null in a key", "unknown column"],
)
def test_wrong_rows_are_refused_whole(client: TieringClient, rows: pa.Table) -> None:
    table = new_table(client, [1])
    good = pa.table({"id": [7], "name": ["a"]}, schema=SCHEMA)
    assert refusal(lambda: list(client.write_rows(table.path, WriteKind.UPSERT, [rows]))).code is ErrorCode.INVALID_ROWS
    assert client.list_buckets([table.path])[table.path][0].log_end_offset == 1
    assert list(client.write_rows(table.path, WriteKind.UPSERT, [good])) == [1]


def test_bytes_that_are_no_rows_are_refused(client: TieringClient, channel: grpc.Channel) -> None:
    table = new_table(client)
    rows = ipc(pa.table({"id": [1], "name": ["a"]}, schema=SCHEMA))
    for arrow_ipc in (b"", b"garbage" * 10, rows[:-40], rows.replace(b"name", b"\xff\xfeme")):
        request = tables_pb2.WriteRowsRequest(
            table_path={"database_name": "db", "table_name": table.path.table},
            kind=tables_pb2.PB_WRITE_KIND_UPSERT,
            arrow_ipc=arrow_ipc,
        )
        with pytest.raises(grpc.RpcError) as failed:
            list(TablesStub(channel).WriteRows(iter([request]), timeout=20))
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "Arrow IPC" in failed.value.details()
    assert client.list_buckets([table.path])[table.path][0].log_end_offset == 0


def ipc(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def test_log_and_snapshots_are_served_to_readers_elsewhere(client: TieringClient) -> None:
    table = new_table(client, range(1000))
    bucket = TableBucket(table.table_id, 0)
    assert sum(map(len, client.fetch_log(bucket, 0, 1000))) > 1000
    (snapshot,) = client.take_kv_snapshots([table.path])[table.table_id]
    entries = [
        pa.ipc.open_stream(part).read_all()
        for part in client.fetch_kv_snapshot(bucket, snapshot.snapshot_id, None, None)
    ]
    assert sum(part.num_rows for part in entries) == snapshot.row_count == 1000
    assert refusal(lambda: list(client.fetch_log(bucket, 0, 1001))).code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE
    gone = refusal(lambda: list(client.fetch_kv_snapshot(bucket, 99, None, None)))
    assert gone.code is ErrorCode.KV_SNAPSHOT_NOT_EXIST
    assert refusal(lambda: client.kv_snapshot_metadata([(bucket, 99)])).code is ErrorCode.KV_SNAPSHOT_NOT_EXIST


# Leases


def test_leases_over_the_wire(client: TieringClient) -> None:  # L1, L6, L8, L22
    table = new_table(client, [1, 2], num_buckets=1)
    bucket = TableBucket(table.table_id, 0)
    (snapshot,) = client.take_kv_snapshots([table.path])[table.table_id]
    acquired = client.acquire_lease("wire", HOUR, {bucket: snapshot.snapshot_id})
    assert acquired.unavailable_snapshots == {}
    newer = client.acquire_lease("wire", HOUR, {bucket: 99})
    assert newer.unavailable_snapshots == {bucket: 99}
    (lease,) = client.list_leases("wire")
    assert (lease.snapshots, lease.attempt_token) == ({bucket: snapshot.snapshot_id}, newer.attempt_token)
    renewed = client.renew_leases({"wire": 2 * HOUR, "nobody": HOUR})
    assert isinstance(renewed["wire"], int)
    assert isinstance(renewed["nobody"], FlussTieringError)
    assert client.release_lease("wire", [bucket], attempt_token=acquired.attempt_token) is False
    assert client.drop_lease("wire", attempt_token=acquired.attempt_token) is LeaseDrop.STALE
    assert client.release_lease("wire", [bucket], attempt_token=newer.attempt_token) is True
    assert client.drop_lease("wire") is LeaseDrop.UNKNOWN


def test_a_table_without_primary_key_has_nothing_to_lease(client: TieringClient) -> None:  # L19
    table = new_table(client, [1], primary_key=False)
    with refused(ErrorCode.TABLE_WITHOUT_PRIMARY_KEY, str(table.path)):
        client.acquire_lease("L19", HOUR, {TableBucket(table.table_id, 0): 1})
    assert client.list_leases("L19") == []


def test_nothing_to_lease_is_refused_unless_it_is_meant(client: TieringClient) -> None:  # L19
    assert refusal(lambda: client.acquire_lease("empty", HOUR, {})).code is ErrorCode.INVALID_REQUEST
    attempt = client.acquire_lease("empty", HOUR, {}, allow_empty=True)
    assert (attempt.expiration_time, client.list_leases("empty")) == (0, [])
    assert client.lease_outcome("empty").newest_attempt_token == attempt.attempt_token


@pytest.mark.parametrize("duration_ms", [0, -1, 31 * 24 * HOUR])
def test_a_duration_must_make_sense(client: TieringClient, duration_ms: int) -> None:
    with refused(ErrorCode.INVALID_REQUEST, "duration"):
        client.acquire_lease("X", duration_ms, {}, allow_empty=True)


# Tiering


def test_a_round_over_the_wire(client: TieringClient) -> None:  # S14, S16, S21, S25
    table = new_table(client, [1, 2, 3])
    (status,) = client.list_tiering_statuses(table.path)
    assert (status.state, status.last_tiered_time, status.last_error) == (TieringState.SCHEDULED, None, None)
    claim = claimed(client, table, "round")
    bucket = TableBucket(table.table_id, 0)
    assert client.lake_snapshot(table.path) is None
    path = client.prepare_lake_snapshot(table, claim.tiering_epoch, {bucket: 3})
    for _ in range(2):
        client.commit_lake_snapshot(table, claim.tiering_epoch, 77, {bucket: 3}, path, "commit-1")
    snapshot = client.lake_snapshot(table.path)
    assert snapshot is not None
    assert (snapshot.snapshot_id, snapshot.log_end_offsets) == (77, {bucket: 3})
    stats = TieringStats(rows=3, bytes=500, files=1, lake_snapshot_id=77)
    entry = HeartbeatEntry(table.table_id, claim.tiering_epoch, stats=stats)
    assert client.heartbeat(finished=[entry]).finished_errors == {}
    (outcome,) = client.lease_outcome("round").rounds
    assert (outcome.state, outcome.stats, outcome.driver) == (TieringState.TIERED, stats, "driver-1")
    assert client.list_tiering_rounds(table.path) == [outcome]
    (status,) = client.list_tiering_statuses(table.path)
    assert (status.state, status.last_tiered_time) == (TieringState.SCHEDULED, outcome.end_time)
    assert status in client.list_tiering_statuses()


def test_a_fenced_round_prepares_and_commits_nothing(client: TieringClient) -> None:  # S5, upstream 2648
    table = new_table(client, [1, 2, 3])
    bucket = TableBucket(table.table_id, 0)
    client.acquire_lease("fence", HOUR, {}, allow_empty=True)
    stale = claimed(client, table, "fence")
    path = client.prepare_lake_snapshot(table, stale.tiering_epoch, {bucket: 3})
    client.acquire_lease("fence", HOUR, {}, allow_empty=True)
    fresh = claimed(client, table, "fence")
    for call in (
        lambda: client.prepare_lake_snapshot(table, stale.tiering_epoch, {bucket: 3}),
        lambda: client.commit_lake_snapshot(table, stale.tiering_epoch, 1, {bucket: 3}, path, "stale"),
    ):
        assert refusal(call).code is ErrorCode.FENCED_TIERING_EPOCH
    assert client.lake_snapshot(table.path) is None
    client.commit_lake_snapshot(table, fresh.tiering_epoch, 2, {bucket: 3}, path, "fresh")


def test_a_commit_without_its_offsets_file_is_refused_and_remembered(client: TieringClient) -> None:  # S10
    table = new_table(client, [1, 2, 3])
    bucket = TableBucket(table.table_id, 0)
    claim = claimed(client, table, "no file")
    foreign = new_table(client, [1])
    foreign_claim = claimed(client, foreign, "no file 2")
    foreign_path = client.prepare_lake_snapshot(foreign, foreign_claim.tiering_epoch, {})
    for path in ("", "/etc/passwd", foreign_path):
        error = refusal(
            lambda path=path: client.commit_lake_snapshot(table, claim.tiering_epoch, 1, {bucket: 3}, path, "c")
        )
        assert error.code is ErrorCode.INVALID_REQUEST
        assert "offsets file" in error.message
    (status,) = client.list_tiering_statuses(table.path)
    assert (status.state, "offsets file" in (status.last_error or "")) == (TieringState.TIERING, True)
    assert client.lake_snapshot(table.path) is None


def test_prepare_and_commit_go_table_by_table(client: TieringClient, channel: grpc.Channel) -> None:  # S5
    good, bad = new_table(client, [1]), new_table(client, [1])
    epoch = claimed(client, good, "good").tiering_epoch
    claimed(client, bad, "bad")
    stub = LakeTieringStub(channel)
    prepared = stub.PrepareLakeTableSnapshot(
        lake_tiering_pb2.PrepareLakeTableSnapshotRequest(
            bucket_offsets=[
                {"table_id": bad.table_id, "tiering_epoch": 99},
                {"table_id": 1 << 40, "tiering_epoch": 1},
                {"table_id": good.table_id, "tiering_epoch": epoch, "bucket_offsets": [{"log_end_offset": 1}]},
            ]
        ),
        timeout=10,
    ).prepared_tables
    assert [each.error.code for each in prepared] == ["FENCED_TIERING_EPOCH", "TABLE_NOT_EXIST", ""]
    committed = stub.CommitLakeTableSnapshot(
        lake_tiering_pb2.CommitLakeTableSnapshotRequest(
            tables_req=[
                {"table_id": bad.table_id, "tiering_epoch": 99, "snapshot_id": 1, "commit_id": "c"},
                {"table_id": good.table_id, "tiering_epoch": epoch, "snapshot_id": 1, "commit_id": "c"},
            ],
            lake_table_snapshot_metadata=[
                {
                    "table_id": good.table_id,
                    "snapshot_id": 1,
                    "tiered_bucket_offsets_file_path": prepared[2].lake_table_offsets_path,
                }
            ],
        ),
        timeout=10,
    ).tables_resp
    assert [each.error.code for each in committed] == ["INVALID_REQUEST", ""]


def test_a_table_that_is_not_tiered_says_how_to_be(client: TieringClient) -> None:
    table = new_table(client, tiered=False)
    (refused,) = client.claim_tables([table.path], "X", None, "d")
    assert isinstance(refused, FlussTieringError)
    (not_resumed,) = client.resume_tables([table.path])
    assert isinstance(not_resumed, FlussTieringError)
    listed = refusal(lambda: client.list_tiering_statuses(table.path))
    watched = refusal(lambda: next(client.watch_tiering_statuses([table.path])))
    for each in (refused, not_resumed, listed, watched):
        assert each.code is ErrorCode.INVALID_TIERING_STATE
        assert "table.datalake.enabled=true" in each.message
    assert table.path not in {status.path for status in client.list_tiering_statuses()}


def test_a_round_knows_where_it_was_started(client: TieringClient) -> None:  # E31
    table = new_table(client, [1])
    origin = RoundOrigin("tier", "scheduled__2026-11-28", "submit", 3, 2, "local-17", "https://spark/proxy/local-17")
    client.claim_tables([table.path], "origin", None, "d", origin=origin)
    (running,) = client.list_tiering_rounds(table.path)
    (by_lease,) = client.lease_outcome("origin").rounds
    client.cancel_tiering("origin", None, "enough")
    (ended,) = client.list_tiering_rounds(table.path)
    assert running.origin == by_lease.origin == ended.origin == origin


def test_a_round_knows_since_when_its_records_had_waited(client: TieringClient) -> None:  # E31
    table = new_table(client, [1])
    (before,) = client.list_tiering_statuses(table.path)
    assert before.waiting_since is not None
    claimed(client, table, "named")
    (by_name,) = client.list_tiering_rounds(table.path)
    assert by_name.waiting_since == before.waiting_since


def test_the_tables_that_fail_can_be_listed_alone(client: TieringClient, channel: grpc.Channel) -> None:  # E30
    tables = [new_table(client, [1]) for _ in range(3)]
    for table in tables[:2]:
        claim = claimed(client, table, f"failing {table.table_id}")
        client.heartbeat(failed=[HeartbeatEntry(table.table_id, claim.tiering_epoch, error_message="disk full")])
    client.claim_tables([tables[1].path], "failing again", None, "d")
    ours = {table.table_id for table in tables}
    failing = [each for each in client.list_tiering_statuses(failing=True) if each.table_id in ours]
    assert {each.table_id for each in failing} == {each.table_id for each in tables[:2]}
    assert {each.state for each in failing} == {TieringState.FAILED, TieringState.TIERING}
    assert all(each.failing_since is not None for each in failing)
    assert client.list_tiering_statuses(tables[2].path, failing=True) == []
    stub = LakeTieringStub(channel)
    request = lake_tiering_pb2.ListTieringStatusesRequest(failing=True, page_size=1)
    found = []
    while True:
        page = stub.ListTieringStatuses(request, timeout=10)
        found += [each.table_id for each in page.tiering_statuses]
        request.page_token = page.next_page_token
        if not page.next_page_token:
            break
    assert set(found) & ours == {each.table_id for each in tables[:2]}


def test_claims_answer_in_the_order_asked_for(client: TieringClient) -> None:  # S5
    one, two = new_table(client), new_table(client)
    first, unknown, last = client.claim_tables([two.path, UNKNOWN_TABLE, one.path], "order", None, "d")
    assert isinstance(first, Claim)
    assert isinstance(last, Claim)
    assert (first.path, last.path) == (two.path, one.path)
    assert isinstance(unknown, FlussTieringError)
    assert unknown.code is ErrorCode.TABLE_NOT_EXIST
    twice = refusal(lambda: client.claim_tables([one.path, one.path], "order", None, "d"))
    assert twice.code is ErrorCode.INVALID_REQUEST


def test_dropping_a_table_ends_all_it_had(client: TieringClient) -> None:  # S12, S20, upstream 3483
    dropped, other = new_table(client, [1, 2]), new_table(client, [1, 2])
    lease_latest_snapshots(client, "drop", [dropped.path, other.path], HOUR)
    claim = claimed(client, dropped, "drop")
    client.drop_table(dropped.path, drop_untiered=True)
    (lease,) = client.list_leases("drop")
    assert {bucket.table_id for bucket in lease.snapshots} == {other.table_id}
    answer = client.heartbeat(tiering=[HeartbeatEntry(dropped.table_id, claim.tiering_epoch)])
    assert answer.tiering_errors[dropped.table_id].code is ErrorCode.TABLE_NOT_EXIST
    assert dropped.path not in {status.path for status in client.list_tiering_statuses()}
    again = client.create_table(dropped.path, descriptor())
    (status,) = client.list_tiering_statuses(again.path)
    assert (again.table_id != dropped.table_id, status.tiering_epoch, status.last_error) == (True, 0, None)
    put(client, again, {1: "a"})


# Requests that no client of ours sends


TABLE = {"database_name": "db", "table_name": "t"}
STUBS = {TablesStub: tables_pb2, KvSnapshotLeasesStub: kv_snapshot_leases_pb2, LakeTieringStub: lake_tiering_pb2}


@cases(
    ("method", "fields", "named"),
    [
        ("CreateTable", {}, "table_path is missing"),
        ("CreateTable", {"table_path": TABLE}, "descriptor"),
        ("DropTable", {}, "table_path is missing"),
        ("DropPartition", {}, "table_path is missing"),
        ("GetTables", {"table_paths": [{}]}, "is not a database name"),
        ("GetKvSnapshotMetadata", {"snapshots": [{"table_id": -1}]}, "table_id is -1"),
        ("FetchLog", {}, "bucket is missing"),
        ("FetchLog", {"bucket": {"table_id": 1}, "start_offset": -5}, "start_offset is -5"),
        ("FetchKvSnapshot", {}, "bucket is missing"),
        ("AcquireKvSnapshotLease", {}, "lease_id is ''"),
        ("DropKvSnapshotLease", {"lease_id": "x" * 600}, "512"),
        ("DropKvSnapshotLease", {"lease_id": "a\nb"}, "printable"),
        ("ReleaseKvSnapshotLease", {"lease_id": "x", "attempt_token": 0}, "attempt_token is 0"),
        (
            "ReleaseKvSnapshotLease",
            {"lease_id": "x", "buckets_to_release": [{}] * (MAX_ENTRIES + 1)},
            f"at most {MAX_ENTRIES}",
        ),
        ("ClaimTables", {}, "lease_id is ''"),
        *(
            ("ClaimTables", {"lease_id": "x", "origin": origin}, named)
            for origin, named in (
                ({"dag_id": "x" * 600}, "PbRoundOrigin.dag_id is 'xxx"),
                ({"run_id": "a\x1b[31m"}, "printable"),
                ({"try_number": -1}, "try_number is -1"),
                ({"spark_ui_url": "javascript:alert(1)"}, "spark_ui_url is 'javascript:alert(1)': expected an address"),
                ({"spark_ui_url": "http://user:pw@host/"}, "is 'http://user:***@host/': expected"),  # E35
            )
        ),
        ("CancelTiering", {}, "lease_id is ''"),
        ("GetLeaseOutcome", {}, "lease_id is ''"),
        ("ListTieringRounds", {"limit": -1}, "limit is -1"),
        ("ListTieringRounds", {"limit": 100_000}, "limit is 100000"),
        ("GetLakeSnapshot", {}, "table_path is missing"),
        ("LakeTieringHeartbeat", {"tiering_tables": [{}] * (MAX_ENTRIES + 1)}, f"at most {MAX_ENTRIES}"),
        ("LakeTieringHeartbeat", {"force_finished_tables": [1 << 40]}, "force_finished_tables"),
    ],
)
def test_what_cannot_be_meant_is_an_invalid_argument(
    channel: grpc.Channel, method: str, fields: dict[str, Any], named: str
) -> None:
    ((stub, messages),) = [(stub(channel), module) for stub, module in STUBS.items() if hasattr(stub(channel), method)]
    with pytest.raises(grpc.RpcError) as failed:
        list(getattr(stub, method)(getattr(messages, f"{method}Request")(**fields), timeout=20))
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT, failed.value
    assert named in failed.value.details()
    assert "Traceback" not in failed.value.details()


@pytest.mark.parametrize("unit", ["表", "é", "%", "\N{GRINNING FACE}", "\n"], ids=ascii)
def test_an_error_in_any_script_arrives_with_its_code(client: TieringClient, unit: str) -> None:  # D14
    table, lease_id = new_table(client), f"lease of {new_path()}"
    token = client.acquire_lease(lease_id, HOUR, {}, allow_empty=True).attempt_token
    client.cancel_tiering(lease_id, token, unit * 3000)
    refused = refusal(lambda: client.claim_tables([table.path], lease_id, token, "driver-1"))
    assert refused.code is ErrorCode.STALE_ATTEMPT
    assert f"attempt {token} of lease {lease_id} was cancelled: {(unit * 5).strip()}" in refused.message
    # In a part of an answer the text needs no header, and is cut by characters alone.
    other = new_table(client)
    (claim,) = client.claim_tables([other.path], f"other {lease_id}", None, unit.strip() or "driver")
    assert isinstance(claim, Claim)
    failed = HeartbeatEntry(claim.table_id, claim.tiering_epoch, error_message=unit * 3000)
    assert not client.heartbeat(failed=[failed]).failed_errors
    answer = client.heartbeat(tiering=[HeartbeatEntry(claim.table_id, claim.tiering_epoch)])
    assert answer.tiering_errors[claim.table_id].code is ErrorCode.INVALID_TIERING_STATE
    assert unit * 500 in answer.tiering_errors[claim.table_id].message
    assert len(answer.tiering_errors[claim.table_id].message) <= 2048


def test_snapshots_are_looked_for_at_once_and_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four = threading.Barrier(4, timeout=10)

    def kv_snapshot(_: EmbeddedStorage, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        four.wait()
        return None if snapshot_id >= 100 else KvSnapshot(bucket, snapshot_id, snapshot_id, 1, 1, f"{snapshot_id}")

    with ServerThread(tmp_path / "data") as server, TieringClient(server.target) as client:
        bucket = TableBucket(new_table(client, [1]).table_id, 0)
        monkeypatch.setattr(EmbeddedStorage, "kv_snapshot", kv_snapshot)
        ids = [7, 3, 9, 1, 8, 2, 6, 4]
        found = client.kv_snapshot_metadata([(bucket, snapshot_id) for snapshot_id in ids])
        assert [each.snapshot_id for each in found] == ids
        with pytest.raises(FlussTieringError, match="snapshot 101 of") as refused:
            client.kv_snapshot_metadata([(bucket, snapshot_id) for snapshot_id in (1, 101, 100, 2)])
        assert refused.value.code is ErrorCode.KV_SNAPSHOT_NOT_EXIST
        monkeypatch.undo()
        assert client.kv_snapshot_metadata([]) == []
        (taken,) = client.take_kv_snapshots([client.list_tables("db")[0].path])[bucket.table_id]
        assert client.kv_snapshot_metadata([(bucket, taken.snapshot_id)]) == [taken]
