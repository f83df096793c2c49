"""Limits of calls: what one client may send, so that the others are served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import pytest

from engine_support import SCHEMA, ServerThread, descriptor, new_path, new_table
from fluss_tiering.api.v1 import common_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import KvSnapshotLeasesStub
from fluss_tiering.api.v1.lake_tiering_pb2_grpc import LakeTieringStub
from fluss_tiering.api.v1.tables_pb2_grpc import TablesStub
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState
from fluss_tiering.server.edge.methods import METHODS
from fluss_tiering.server.services import pages
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.wire import leases as leases_wire
from fluss_tiering.wire.checks import MAX_ENTRIES
from fluss_tiering.wire.tables import path_to_pb
from needs import needs

MAX_REQUEST = 300_000
MAX_CALLS = 4


@pytest.fixture(scope="module")
@needs("system")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    folder: Path = tmp_path_factory.mktemp("limits")
    with ServerThread(folder / "data", max_request_bytes=MAX_REQUEST, max_concurrent_calls=MAX_CALLS) as running:
        yield running


@pytest.fixture
def channel(server: ServerThread) -> Iterator[grpc.Channel]:
    options = [("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(server.target, options) as opened:
        yield opened


def refusal(call: Any) -> grpc.Call:
    with pytest.raises(grpc.RpcError) as refused:
        list(call)
    return refused.value  # type: ignore[return-value]


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"/fluss_tiering.v1.Tables/WriteRows"}))
def test_a_large_request_is_refused_before_it_is_converted(channel: grpc.Channel, method: str) -> None:  # D8
    # Bytes that no decoder takes: it is their number that is refused.
    refused = refusal(channel.unary_stream(method)(b"\xff" * (MAX_REQUEST + 1), timeout=10))
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"{MAX_REQUEST + 1} bytes" in refused.details()
    assert "max-request-bytes" in refused.details() or "such a request may have" in refused.details()


def test_rows_may_be_larger(server: ServerThread) -> None:  # D8
    import pyarrow as pa  # noqa: PLC0415

    with TieringClient(server.target) as client:
        table = new_table(client, primary_key=False)
        rows = pa.table({"id": list(range(60_000)), "name": ["x" * 20] * 60_000}, schema=SCHEMA)
        assert rows.nbytes > MAX_REQUEST
        assert sum(client.write_rows(table.path, WriteKind.APPEND, [rows])) == 60_000


@contextmanager
def looks_at_buckets() -> Iterator[list[TablePath]]:
    """The tables whose buckets the storage was asked for."""
    asked: list[TablePath] = []
    original = EmbeddedStorage.buckets

    def buckets(storage: EmbeddedStorage, path: TablePath, **_: Any) -> Any:
        asked.append(path)
        return original(storage, path)

    with mock.patch.object(EmbeddedStorage, "buckets", buckets):
        yield asked


def test_a_table_that_is_named_often_is_looked_at_once(channel: grpc.Channel, server: ServerThread) -> None:  # D8
    with TieringClient(server.target) as client:
        table = new_table(client)
    paths = [path_to_pb(table.path)] * 5_000
    with looks_at_buckets() as asked:
        response = TablesStub(channel).ListBuckets(tables_pb2.ListBucketsRequest(table_paths=paths), timeout=30)
    assert len(response.tables) == len(paths), "each place of the request has its answer"
    assert asked.count(table.path) <= 2, "once for the call, and perhaps once by a job"


def test_an_answer_that_is_too_large_is_not_made_to_its_end(channel: grpc.Channel, server: ServerThread) -> None:  # D8
    with TieringClient(server.target) as client:
        paths = [new_table(client).path for _ in range(40)]
    request = tables_pb2.ListBucketsRequest(table_paths=[path_to_pb(path) for path in paths])
    size = TablesStub(channel).ListBuckets(request, timeout=30).ByteSize()
    with looks_at_buckets() as asked, mock.patch.object(pages, "MAX_ANSWER_BYTES", size // 4):
        refused = refusal(iter(lambda: TablesStub(channel).ListBuckets(request, timeout=30), 0))
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "the answer to ListBuckets is larger" in refused.details()
    assert sum(path in asked for path in paths) <= len(paths) // 2, "the others are not looked at"


@pytest.mark.parametrize("method", ["ListBuckets", "GetTables", "TakeKvSnapshots"])
def test_the_tables_of_a_request_are_counted(channel: grpc.Channel, method: str) -> None:  # D8
    short = common_pb2.PbTablePath(database_name="d", table_name="t")
    request = getattr(tables_pb2, f"{method}Request")(table_paths=[short] * (MAX_ENTRIES + 1))
    assert request.ByteSize() < MAX_REQUEST
    refused = refusal(iter(lambda: getattr(TablesStub(channel), method)(request, timeout=10), 0))
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"at most {MAX_ENTRIES}" in refused.details()


def test_entries_are_counted_before_they_are_converted(channel: grpc.Channel) -> None:  # D8
    bucket = kv_snapshot_leases_pb2.PbKvSnapshotLeaseForBucket()
    leased = kv_snapshot_leases_pb2.PbKvSnapshotLeaseForTable(bucket_snapshots=[bucket] * (MAX_ENTRIES + 1))
    acquire = kv_snapshot_leases_pb2.AcquireKvSnapshotLeaseRequest(
        lease_id="x", lease_duration_ms=1000, snapshots_to_lease=[leased]
    )
    with mock.patch.object(leases_wire, "snapshots_from_pb") as convert:
        refused = refusal(iter(lambda: KvSnapshotLeasesStub(channel).AcquireKvSnapshotLease(acquire, timeout=10), 0))
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"{MAX_ENTRIES + 1} entries in all" in refused.details()
    convert.assert_not_called()
    heartbeat = lake_tiering_pb2.LakeTieringHeartbeatRequest(force_finished_tables=[1] * (MAX_ENTRIES + 1))
    refused = refusal(iter(lambda: LakeTieringStub(channel).LakeTieringHeartbeat(heartbeat, timeout=10), 0))
    assert f"at most {MAX_ENTRIES}" in refused.details()


def test_calls_beyond_the_limit_are_told_to_come_again(channel: grpc.Channel, server: ServerThread) -> None:  # D8
    entered, go_on = threading.Semaphore(0), threading.Event()
    original = EmbeddedStorage.describe

    def describe(storage: EmbeddedStorage) -> Any:
        entered.release()
        go_on.wait(30)
        return original(storage)

    stub = TablesStub(channel)
    request = tables_pb2.DescribeStorageRequest()
    with mock.patch.object(EmbeddedStorage, "describe", describe):
        running = [stub.DescribeStorage.future(request, timeout=30) for _ in range(MAX_CALLS)]
        for _ in running:
            assert entered.acquire(timeout=30)
        try:
            refused = refusal(iter(lambda: stub.ListTables(tables_pb2.ListTablesRequest(), timeout=10), 0))
        finally:
            go_on.set()
        for each in running:
            assert each.result().kind
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "max-concurrent-calls" in refused.details()
    assert dict(refused.trailing_metadata())["retry-after-ms"]
    with TieringClient(server.target) as client:
        for _ in range(2 * MAX_CALLS):
            client.list_tables()


def test_a_heartbeat_with_many_reports_is_applied_as_a_whole(server: ServerThread) -> None:  # D8, S6, S7
    lease_id = f"lease of {new_path()}"
    with TieringClient(server.target) as client:
        tables = [client.create_table(new_path(), descriptor(freshness="1h")) for _ in range(9)]
        claims = client.claim_tables([table.path for table in tables], lease_id, None, "driver")
        entries = [HeartbeatEntry(each.table_id, each.tiering_epoch) for each in claims if isinstance(each, Claim)]
        assert len(entries) == 9
        unknown = HeartbeatEntry(999, 1)
        answer = client.heartbeat(
            failed=[entries[0], unknown, entries[1], entries[2]],
            tiering=[*entries[3:6], unknown],
            finished=[unknown, *entries[6:9]],
            force_finished=[entries[8].table_id],
            request_table=True,
            driver="driver",
        )
        for errors in (answer.failed_errors, answer.tiering_errors, answer.finished_errors):
            assert errors.keys() == {999}
        assert answer.claim is not None
        assert answer.claim.table_id == entries[8].table_id, "it became pending by its own report"
        states = [client.list_tiering_statuses(table.path)[0].state for table in tables]
        expected = [TieringState.FAILED] * 3 + [TieringState.TIERING] * 3 + [TieringState.SCHEDULED] * 2
        assert states == [*expected, TieringState.TIERING]
        assert client.cancel_tiering(lease_id, None, "stop")
        outcome = client.lease_outcome(lease_id)
        assert {each.state for each in outcome.rounds} == {TieringState.FAILED, TieringState.TIERED}
        assert len([each for each in outcome.rounds if each.error == "stop"]) == 3
