"""Reads a real Fluss cluster as a worker of a round does, without writing: rows per second of one core."""

from __future__ import annotations

import resource
from collections.abc import Callable
from statistics import median
from typing import Final

from benchmarks.cluster import running_cluster
from benchmarks.control import Figure
from benchmarks.flink.tables import BUCKETS
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.kv import latest_kv_snapshots
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.client import FlussClient

LOG_ROWS: Final = 4_000_000
KEYED_ROWS: Final = 2_000_000
_LOG_GOAL: Final = 5_000_000
_KEYED_GOAL: Final = 600_000
_READS: Final = 3
"""The number of measured reads. One read before them loads the code that decodes."""


def measure(scale: float) -> list[Figure]:
    """Load a log table and a primary-key table, and read all buckets of each in this process."""
    with running_cluster() as cluster:
        client, tables = cluster.client, cluster.tables
        reader = FlussSplitReader(client)
        log = tables.load("log", max(1, int(LOG_ROWS * scale)))
        ends = _ends(client, log)
        logs = _rate(
            lambda: sum(
                batch.records.num_rows for bucket, end in ends.items() for batch in reader.read_log(log, bucket, 0, end)
            )
        )
        keyed = tables.load("keyed", max(1, int(KEYED_ROWS * scale)), primary_key=True)
        snapshots = [
            KvSnapshot(bucket, latest.snapshot_id, latest.log_offset, row_count=-1, size_bytes=0, path="")
            for bucket, latest in client.call(latest_kv_snapshots(keyed.path)).items()
            if latest is not None
        ]
        values = _rate(
            lambda: sum(
                batch.num_rows
                for snapshot in snapshots
                for batch in reader.read_kv_snapshot(keyed, snapshot, None, None)
            )
        )
    return [
        _figure("fetch and decode a log", logs, _LOG_GOAL),
        _figure("read and decode KV snapshots", values, _KEYED_GOAL),
    ]


def _figure(work: str, rate: float, goal: int) -> Figure:
    return Figure(work, f"{rate:,.0f} rows/s a core", f">= {goal:,}", rate >= goal)


def _rate(read: Callable[[], int]) -> float:
    """Return the rows per CPU second of this process, including the threads that fetch."""
    read()
    return median(_once(read) for _ in range(_READS))


def _once(read: Callable[[], int]) -> float:
    before = _cpu_seconds()
    count = read()
    return count / (_cpu_seconds() - before)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _ends(client: FlussClient, info: TableInfo) -> dict[TableBucket, int]:
    buckets = [TableBucket(info.table_id, number) for number in range(BUCKETS)]
    return {bucket: client.call(log_offset(info.path, bucket, OffsetType.LATEST)) for bucket in buckets}
