"""Generated calls against a server on which tables, rounds and leases are made again and again."""

from __future__ import annotations

import os
import re
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import grpc
import pyarrow as pa
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from engine_support import SCHEMA, ServerProcess, descriptor
from fluss_tiering.api.v1 import common_pb2, kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath, WriteKind
from fluss_tiering.model.tiering import Claim
from fluss_tiering.server.edge.methods import SERVICES
from fluss_tiering.wire.leases import snapshots_to_pb
from fluss_tiering.wire.tables import path_to_pb, table_to_pb
from fluss_tiering.wire.tiering import commit_request, prepare_request
from fuzz.calls import Fuzzer
from waiting import wait_until

RETAINED: Final = 2
SETTINGS: Final = {
    "FLUSS_TIERING_KV_SNAPSHOT_INTERVAL": "1s",
    "FLUSS_TIERING_KV_SNAPSHOT_NUM_RETAINED": str(RETAINED),
    "FLUSS_TIERING_KV_SNAPSHOT_LEASE_EXPIRATION_CHECK_INTERVAL": "1s",
    "FLUSS_TIERING_KV_SCANNER_TTL": "3s",
    "FLUSS_TIERING_KV_SCANNER_EXPIRATION_INTERVAL": "500ms",
}
"""The environment of the server."""
ROWS: Final = pa.table({"id": list(range(50)), "name": [f"name {each}" for each in range(50)]}, schema=SCHEMA)
SEED: Final = int(os.environ.get("FUZZ_SEED", "20261121"))
_CALLS_ON_ONE_STATE: Final = 250
_MOST_TIMES: Final = 5
"""So many times the calls are made at most, until each method has taken one."""


def fuzz(
    server: ServerProcess,
    client: TieringClient,
    channel: grpc.Channel,
    calls: int,
    *,
    besides: Callable[[Fuzzer], list[str]] | None = None,
    token: str | None = None,
) -> Counter[str]:
    """Make the calls, then give everything back and look for what is left.

    Args:
        server: The server.
        client: A client that may do everything.
        channel: The channel of the generated calls, which may do everything, too.
        calls: How many calls at least.
        besides: What is done after each call; the answer says what was wrong.
        token: The token with which the server's metrics are read.
    """
    fuzzer = Fuzzer(channel, SEED)
    methods = {method.full_name for service in SERVICES for method in service.methods}
    for number in range(_MOST_TIMES * calls):
        # Deep enough: of every method at least one call was taken.
        never = methods - {method for method, status in fuzzer.answered if status == "OK"}
        if number >= calls and not never:
            break
        if number % _CALLS_ON_ONE_STATE == 0:
            for request in prepared(client, number):
                fuzzer.memory.learn(request)
        method, requests = fuzzer.next_call()
        wrong = fuzzer.call(method, requests)
        shown = [request[:2000].hex() for request in requests]
        if not wrong and besides is not None:
            wrong = besides(fuzzer)
        assert not wrong, (
            f"FUZZ_SEED={SEED} FUZZ_CALLS={number + 1} replays it: call {number} of {method.full_name} "
            f"was answered with {wrong}; requests: {shown}"
        )
    assert server.process is not None
    assert server.process.poll() is None
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert not never, f"FUZZ_SEED={SEED}: no call of {', '.join(sorted(never))} was taken"
    # The model judged answers by each of its rules.
    rules = {"acquire", "drop", "list", "stale", "claim", "report"}
    assert rules <= fuzzer.model.judged.keys(), fuzzer.model.judged
    no_leaks(server, client, token)
    log = server.log_file.read_text()
    assert "call failed" not in log
    assert "background job failed" not in log
    statuses: Counter[str] = Counter()
    for (_, status), count in fuzzer.answered.items():
        statuses[status] += count
    return statuses


def no_leaks(server: ServerProcess, client: TieringClient, token: str | None) -> None:
    """After all leases are dropped nothing is pinned, and old snapshots go; after the tables nothing is left at all."""
    for lease in client.list_leases():
        client.drop_lease(lease.lease_id)
    wait_until(lambda: metric(server, token, "fluss_coordinator_leasedKvSnapshotCount") == 0)
    assert metric(server, token, "fluss_coordinator_kvSnapshotLeaseCount") == 0
    wait_until(lambda: metric(server, token, "fluss_tiering_kv_scanners") == 0)
    wait_until(lambda: most_snapshots(server) <= RETAINED)
    for table in client.list_tables():
        client.drop_table(table.path, drop_untiered=True)
    assert client.list_tables() == []
    assert client.list_leases() == []
    assert client.list_tiering_statuses() == []
    wait_until(lambda: not list(server.data_dir.glob("tables/*/*/kv-*/snap-*")))


def most_snapshots(server: ServerProcess) -> int:
    """Of the bucket that has most of them on disk."""
    buckets = server.data_dir.glob("tables/*/*/kv-*")
    return max((len(list(bucket.glob("snap-*"))) for bucket in buckets), default=0)


def metric(server: ServerProcess, token: str | None, name: str) -> float:
    """Return one number that the server exports."""
    port = re.findall(r"metrics_port=(\d+)", server.log_file.read_text())[-1]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        text = response.read().decode()
    (value,) = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(value)


def prepared(client: TieringClient, number: int) -> Iterator[Message]:
    """Makes tables with rows, snapshots and a round, and yields requests that are right for them.

    Generated calls drop tables and end rounds; with this again and again they come to deep states too.
    """
    for primary_key in (True, False):
        path = TablePath("db", f"{'keyed' if primary_key else 'log'}_{number}")
        table = client.create_table(path, descriptor(primary_key=primary_key, num_buckets=2))
        kind = WriteKind.UPSERT if primary_key else WriteKind.APPEND
        assert sum(client.write_rows(path, kind, [ROWS])) == ROWS.num_rows
        yield table_to_pb(table)
        yield from row_requests(table)
        if primary_key:
            client.take_kv_snapshots([path])
            yield from snapshot_requests(table)
        yield from round_requests(client, table)
        yield from list_requests(table)


def row_requests(table: TableInfo) -> Iterator[Message]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(ROWS)
    kind = tables_pb2.PB_WRITE_KIND_UPSERT if table.has_primary_key else tables_pb2.PB_WRITE_KIND_APPEND
    path, rows = path_to_pb(table.path), sink.getvalue().to_pybytes()
    yield tables_pb2.WriteRowsRequest(table_path=path, kind=kind, arrow_ipc=rows)
    bucket = common_pb2.PbTableBucket(table_id=table.table_id, bucket_id=0)
    yield tables_pb2.FetchLogRequest(bucket=bucket, start_offset=0, end_offset=1)


def snapshot_requests(table: TableInfo) -> Iterator[Message]:
    bucket = common_pb2.PbTableBucket(table_id=table.table_id, bucket_id=0)
    yield tables_pb2.FetchKvSnapshotRequest(bucket=bucket, snapshot_id=0)
    opened = kv_scan_pb2.PbScanReqForBucket(table_id=table.table_id, bucket_id=0)
    yield kv_scan_pb2.ScanKvRequest(bucket_scan_req=opened, batch_size_bytes=64)
    pinned = snapshots_to_pb({TableBucket(table.table_id, 0): 0})
    yield kv_snapshot_leases_pb2.AcquireKvSnapshotLeaseRequest(
        lease_id="lease", lease_duration_ms=60_000, snapshots_to_lease=pinned
    )


def list_requests(table: TableInfo) -> Iterator[Message]:
    path = path_to_pb(table.path)
    yield lake_tiering_pb2.ListTieringRoundsRequest(table_path=path, limit=2)
    yield lake_tiering_pb2.ListTieringRoundsRequest(page_size=2)
    yield lake_tiering_pb2.ListTieringStatusesRequest(table_path=path)
    yield lake_tiering_pb2.GetLakeSnapshotRequest(table_path=path)
    yield lake_tiering_pb2.ListTieringStatusesRequest(page_size=2)
    yield kv_snapshot_leases_pb2.ListKvSnapshotLeasesRequest(page_size=2)
    yield tables_pb2.ListTablesRequest(page_size=2)


def round_requests(client: TieringClient, table: TableInfo) -> Iterator[Message]:
    """A round of the table with a commit to the lake, which goes on."""
    lease_id, offsets = f"round-{table.table_id}", {TableBucket(table.table_id, 0): 1}
    (claim,) = client.claim_tables([table.path], lease_id, None, "fuzz")
    assert isinstance(claim, Claim)
    offsets_path = client.prepare_lake_snapshot(table, claim.tiering_epoch, offsets)
    client.commit_lake_snapshot(table, claim.tiering_epoch, 7, offsets, offsets_path, "commit")
    yield lake_tiering_pb2.ClaimTablesRequest(table_paths=[path_to_pb(table.path)], lease_id=lease_id, driver="fuzz")
    yield prepare_request(table, claim.tiering_epoch, offsets)
    yield commit_request(table, claim.tiering_epoch, 7, offsets, offsets_path, "commit")
    running = lake_tiering_pb2.PbHeartbeatReqForTable(table_id=table.table_id, tiering_epoch=claim.tiering_epoch)
    yield lake_tiering_pb2.LakeTieringHeartbeatRequest(tiering_tables=[running])
