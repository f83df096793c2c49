"""Scans a Fluss cluster in scan sessions of the leaders, and as KV snapshots with the log on top, in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Final

import pyarrow as pa

from benchmarks import rows
from benchmarks.cluster import VERSION_WITH_SESSIONS, running_cluster
from benchmarks.control import Figure
from benchmarks.flink.tables import BUCKETS
from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.storage.fluss.buckets import ClusterBuckets
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.reading.scan_session import BucketScans
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.client import FlussClient, ParallelCalls
from fluss_tiering.storage.fluss.scans import ClusterScans

ROWS: Final = 2_000_000
_CHANGED: Final = 0.2
"""The share of the rows that are changed after the KV snapshots. Only the log has them until the next snapshots."""
_BATCH_BYTES: Final = 4 << 20
_SCANS: Final = 3
"""The number of measured scans of each kind. One scan before them loads the code that decodes."""


class _ClientWithoutSessions(FlussClient):
    """A client to which each server looks like one of Fluss 0.9.1, which has no scan sessions."""

    def call(self, call: Any, *, within: float | None = None) -> Any:  # noqa: ANN401 - the result type is the call's
        if call.api is ApiKey.SCAN_KV:
            raise FlussTieringError(ErrorCode.UNSUPPORTED_VERSION, "there are no scan sessions")
        return super().call(call, within=within)


def measure(scale: float) -> list[Figure]:
    """Load a table, change some of its rows, and scan all of its buckets, one after the other, in each way."""
    count = max(BUCKETS, int(ROWS * scale))
    with running_cluster(VERSION_WITH_SESSIONS) as cluster:
        table = cluster.tables.load("scanned", count, primary_key=True)
        cluster.tables.upsert(table, rows.batches(0, int(count * _CHANGED)))
        old = _ClientWithoutSessions(cluster.bootstrap)
        directly = _seconds(count, lambda: _at_leaders(cluster.client, table))
        sessions = _seconds(count, lambda: _as_the_server(cluster.client, table))
        snapshots = _seconds(count, lambda: _as_the_server(old, table))
        old.close()
    ratio = sessions / snapshots
    return [
        Figure("a scan at the leaders, as tasks of Spark do it", f"{count / directly:,.0f} rows/s", "", True),
        Figure("a scan of the tiering server in sessions", f"{count / sessions:,.0f} rows/s", "", True),
        Figure("its time, of that with KV snapshots and the log", f"{ratio:.2f}", "<= 1.00", ratio <= 1),
    ]


def _seconds(expected: int, scan: Callable[[], Iterator[pa.RecordBatch]]) -> float:
    return median([_once(expected, scan) for _ in range(1 + _SCANS)][1:])


def _once(expected: int, scan: Callable[[], Iterator[pa.RecordBatch]]) -> float:
    started = time.perf_counter()
    found = sum(batch.num_rows for batch in scan())
    if found != expected:
        raise SystemExit(f"error: the scan gave {found} rows, expected {expected}")
    return time.perf_counter() - started


def _buckets(table: TableInfo) -> list[TableBucket]:
    return [TableBucket(table.table_id, number) for number in range(BUCKETS)]


def _at_leaders(client: FlussClient, table: TableInfo) -> Iterator[pa.RecordBatch]:
    for bucket in _buckets(table):
        batches = BucketScans(client).open(table, bucket)
        if batches is None:
            raise SystemExit("error: the cluster has no scan sessions")
        yield from batches


def _as_the_server(client: FlussClient, table: TableInfo) -> Iterator[pa.RecordBatch]:
    """Scan without the gRPC between the server and its client, which is the same in both ways."""
    calls = ParallelCalls()
    scans = ClusterScans(client, calls, RemoteFiles(), ClusterBuckets(client, calls))
    for bucket in _buckets(table):
        _, scan = scans.open(table, bucket, admit=lambda: None, on_lost=lambda: None)
        position = None
        while scan is not None:
            batch = scan.read(position, _BATCH_BYTES, None)
            yield decode_values(batch.values, table.descriptor.columns, table.schema_id)
            position = batch.next_position
            if position is None:
                scan.close()
                scan = None
    calls.close()
