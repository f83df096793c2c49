"""Scans of a cluster that open while the storage is closed, and the lease of a scan: nothing is held afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fluss_tables import descriptor
from refusals import refused

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo, TablePath
from fluss_tiering.storage.fluss.kv_scan import ClusterKvScan
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.calls.kv import SessionRows
from fluss_tiering.storage.fluss.rpc.client import ParallelCalls
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError
from fluss_tiering.storage.fluss.scans import ClusterScans
from fluss_tiering.storage.rocksdb_files import ENTRY_SCHEMA

BUCKET = TableBucket(1, 0)
TABLE = TableInfo(1, TablePath("shop", "orders"), 1, descriptor(primary_key=True), 0)


class Client:
    """A cluster with or without scan sessions."""

    def __init__(self, *, sessions: bool) -> None:
        self._sessions = sessions
        self.held: set[bytes | str] = set()
        self.then: Callable[[], None] = lambda: None

    def call(self, call: Any, **_: Any) -> Any:
        if call.api is ApiKey.SCAN_KV:
            if not self._sessions:
                raise FlussTieringError(ErrorCode.UNSUPPORTED_VERSION, "the server has no sessions")
            if call.request.close_scanner:
                self.held.discard(call.request.scanner_id)
                return None
            self.held.add(b"session")
            self.then()
            return SessionRows(b"session", True, b"", 5)
        if call.api is ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE:
            self.held.add(call.request.lease_id)
            self.then()
        if call.api is ApiKey.DROP_KV_SNAPSHOT_LEASE:
            self.held.discard(call.request.lease_id)
        return 5


@pytest.fixture
def calls() -> Iterator[ParallelCalls]:
    pool = ParallelCalls()
    yield pool
    pool.close()


@pytest.fixture(params=[True, False], ids=["session", "snapshot"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Client:
    def scan(_: object, table: object, bucket: TableBucket, lease: Any, end: int, on_lost: Any) -> ClusterKvScan:
        def rows_from(_: bytes | None) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pylist([{"key": b"k", "value": b"v"}], schema=ENTRY_SCHEMA)

        return ClusterKvScan(
            bucket=bucket,
            log_offset=end,
            rows_from=rows_from,  # type: ignore[arg-type] # no generator is needed
            renew=lease.renew,
            release=lambda _: lease.drop(),
            on_lost=on_lost,
        )

    monkeypatch.setattr(ClusterScans, "_scan", scan)
    return Client(sessions=request.param)


def scans_of(client: Any, calls: ParallelCalls) -> ClusterScans:
    latest = KvSnapshot(BUCKET, 3, 4, -1, 0, "")
    buckets: Any = SimpleNamespace(latest_kv_snapshot=lambda *_: latest, kv_snapshot=lambda *_: latest)
    files: Any = None
    return ClusterScans(client, calls, files, buckets)


def test_a_scan_that_opens_while_the_storage_is_closed_is_closed(client: Client, calls: ParallelCalls) -> None:
    scans = scans_of(client, calls)
    client.then = scans.close
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "shutting down"):
        scans.open(TABLE, BUCKET, admit=lambda: None, on_lost=lambda: None)
    calls.close()
    assert client.held == set()


def test_a_scan_that_is_open_is_lost(client: Client, calls: ParallelCalls) -> None:
    scans, lost = scans_of(client, calls), []
    _, scan = scans.open(TABLE, BUCKET, admit=lambda: None, on_lost=lambda: lost.append(1))
    assert scan is not None
    assert len(client.held) == 1
    scans.close()
    calls.close()
    assert (lost, client.held) == ([1], set())
    with refused(ErrorCode.SCANNER_EXPIRED):
        scan.read(None, None, None)


LOST = FlussConnectionError("the cluster does not answer", outcome_unknown=True)


class LeasingClient:
    """A cluster without scan sessions, in which one kind of call gets no answer."""

    def __init__(self, failing: ApiKey) -> None:
        self._failing = failing
        self.leases: set[str] = set()

    def call(self, call: Any, **_: Any) -> Any:
        if call.api is ApiKey.SCAN_KV:
            raise FlussTieringError(ErrorCode.UNSUPPORTED_VERSION, "the server has no sessions")
        if call.api is ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE:
            self.leases.add(call.request.lease_id)
        if call.api is ApiKey.DROP_KV_SNAPSHOT_LEASE:
            self.leases.discard(call.request.lease_id)
        if call.api is self._failing:
            raise LOST
        return 5


@pytest.mark.parametrize("failing", [ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, ApiKey.GET_KV_SNAPSHOT_METADATA])
def test_a_scan_that_cannot_be_opened_leaves_no_lease(failing: ApiKey) -> None:
    client: Any = LeasingClient(failing)

    def kv_snapshot(*_: object) -> KvSnapshot:
        client.call(SimpleNamespace(api=ApiKey.GET_KV_SNAPSHOT_METADATA))
        raise AssertionError

    latest = KvSnapshot(BUCKET, 3, 4, -1, 0, "")
    buckets: Any = SimpleNamespace(latest_kv_snapshot=lambda *_: latest, kv_snapshot=kv_snapshot)
    files: Any = None
    calls = ParallelCalls()
    scans = ClusterScans(client, calls, files, buckets)
    with refused(ErrorCode.UNAVAILABLE, "does not answer"):
        scans.open(TABLE, BUCKET, admit=lambda: None, on_lost=lambda: None)
    calls.close()
    assert client.leases == set()
