"""The lease of a scan in front of Fluss 0.9.1: whatever fails after it may have been acquired, it is dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fluss_tables import descriptor
from refusals import refused

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.client import ParallelCalls
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError
from fluss_tiering.storage.fluss.scans import ClusterScans

BUCKET = TableBucket(1, 0)
TABLE = TableInfo(1, TablePath("shop", "orders"), 1, descriptor(primary_key=True), 0)
LOST = FlussConnectionError("the cluster does not answer", outcome_unknown=True)


class Client:
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
    client: Any = Client(failing)

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
